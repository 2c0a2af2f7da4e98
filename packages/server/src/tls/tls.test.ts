import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createServer } from "node:tls";
import { HoldfastError } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { defaultConfig } from "../config/schema.js";
import { issueAuthority, issueServerCertificate } from "./issue.js";
import { loadCertificate } from "./load-certificate.js";
import { prepareCertificate } from "./prepare-certificate.js";
import { serverCertificate } from "./server-certificate.js";

const DOMAIN = "sandbox.example.test";
const DAY_MS = 24 * 3600 * 1000;

let directory: string;
const logged: string[] = [];
const log = {
  info: (_facts: Record<string, unknown>, message: string) => void logged.push(message),
  warn: (_facts: Record<string, unknown>, message: string) => void logged.push(message),
};

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "holdfast-tls-"));
  logged.length = 0;
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const prepare = (nowMs = Date.now(), domain = DOMAIN) =>
  prepareCertificate({ directory, domain, log, now: () => nowMs });

async function refusal(attempt: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await attempt.catch((reason: unknown) => reason);
  if (!(error instanceof HoldfastError)) throw new Error(`it was taken: ${String(error)}`);
  return error;
}

/** What a client says who asks for this name and trusts this CA: undefined if all is well. */
async function handshake(
  pair: { readonly certificate: string; readonly key: string },
  name: string,
  ca: string,
): Promise<string | undefined> {
  const server = createServer({ cert: pair.certificate, key: pair.key }, (socket) => socket.end());
  server.on("tlsClientError", () => undefined);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: "127.0.0.1", servername: name, ca });
  try {
    await once(client, "secureConnect");
    return undefined;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === "UNSPECIFIED" ? message : code;
  } finally {
    client.destroy();
    server.close();
  }
}

describe("a certificate of our own", () => {
  test("is trusted for the domain, the API and every sandbox by whoever trusts the CA", async () => {
    const prepared = await prepare();
    expect(prepared.made).toBe(true);
    const ca = await readFile(prepared.caPath, "utf8");
    for (const name of [DOMAIN, `api.${DOMAIN}`, `49983-iabc.${DOMAIN}`])
      expect(await handshake(prepared, name, ca)).toBeUndefined();
    expect(await handshake(prepared, "example.test", ca)).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
    expect(await handshake(prepared, `a.b.${DOMAIN}`, ca)).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
    const other = await issueAuthority(DOMAIN, Date.now());
    expect(await handshake(prepared, DOMAIN, other.certificate)).toBeDefined();
  });

  test("serves a domain as long as one may be", async () => {
    for (const domain of ["a.b", `${"a".repeat(60)}.${"b".repeat(60)}.${"c".repeat(60)}.test`]) {
      const prepared = await prepare(Date.now(), domain);
      const ca = await readFile(prepared.caPath, "utf8");
      expect(await handshake(prepared, `49983-iabc.${domain}`, ca)).toBeUndefined();
    }
  });

  test("is kept, its key for its owner alone", async () => {
    const first = await prepare();
    const folder = join(directory, DOMAIN);
    expect((await readdir(folder)).sort()).toEqual(["ca.key", "ca.pem", "server.key", "server.pem"]);
    for (const name of ["ca.key", "server.key"]) {
      expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600);
      await chmod(join(folder, name), 0o644);
    }
    expect((await stat(first.caPath)).mode & 0o777).toBe(0o644);
    expect(await prepare()).toEqual({ ...first, made: false });
    for (const name of ["ca.key", "server.key"]) expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600);
    expect(logged).toEqual(["made a CA of our own", "made a certificate"]);
  });

  test("is renewed when fewer than 30 days are left, by the same CA", async () => {
    const start = Date.now();
    const first = await prepare(start);
    const later = (days: number) => prepare(start + days * DAY_MS);
    expect(await later(366)).toEqual({ ...first, made: false });
    const renewed = await later(368);
    expect(renewed).toMatchObject({ made: false, caPath: first.caPath });
    expect(renewed.key).not.toBe(first.key);
    expect(await handshake(renewed, DOMAIN, await readFile(first.caPath, "utf8"))).toBe("CERT_NOT_YET_VALID");
    const lastYear = await later(3610);
    expect(lastYear.made).toBe(false);
    expect((await later(3630)).made).toBe(true);
    expect(logged).toContain("our CA is at the end of its time; a new one is made");
  });

  test("is made again if it is damaged, belongs to another CA or another name", async () => {
    const first = await prepare();
    const folder = join(directory, DOMAIN);
    await writeFile(join(folder, "server.pem"), "nonsense");
    const second = await prepare();
    expect(second.key).not.toBe(first.key);
    const stranger = await issueServerCertificate(await issueAuthority(DOMAIN, Date.now()), DOMAIN, Date.now());
    await writeFile(join(folder, "server.pem"), stranger.certificate);
    await writeFile(join(folder, "server.key"), stranger.key);
    const third = await prepare();
    expect(third.key).not.toBe(stranger.key);
    const ca = {
      certificate: await readFile(first.caPath, "utf8"),
      key: await readFile(join(folder, "ca.key"), "utf8"),
    };
    const elsewhere = await issueServerCertificate(ca, "other.test", Date.now());
    await writeFile(join(folder, "server.pem"), elsewhere.certificate);
    await writeFile(join(folder, "server.key"), elsewhere.key);
    const fourth = await prepare();
    expect(await handshake(fourth, `x.${DOMAIN}`, ca.certificate)).toBeUndefined();
    expect(fourth.made).toBe(false);
  });

  test("of another domain has a CA of its own, and the first one is still there", async () => {
    const first = await prepare();
    const second = await prepare(Date.now(), "other.test");
    expect(second.caPath).not.toBe(first.caPath);
    expect(await prepare()).toEqual({ ...first, made: false });
  });

  test("is begun anew if the first start was cut before the CA was whole", async () => {
    const folder = join(directory, DOMAIN);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "ca.key"), "half a ke");
    expect((await prepare()).made).toBe(true);
  });

  test("is not replaced in silence when the CA's key is lost or another's", async () => {
    const { caPath } = await prepare();
    const keyPath = join(directory, DOMAIN, "ca.key");
    await writeFile(keyPath, (await issueAuthority(DOMAIN, Date.now())).key);
    expect((await refusal(prepare())).message).toContain("ca.pem and ca.key do not match");
    await rm(keyPath);
    const error = await refusal(prepare());
    expect(error.hint).toContain("every client must then be told");
    expect(existsSync(caPath)).toBe(true);
  });

  test("cannot lead out of its directory or be for a single word", async () => {
    for (const domain of ["../up", "a/b", "", ".", "..", "a..b", "localhost"])
      expect((await refusal(prepare(Date.now(), domain))).code).toBe("invalid_argument");
  });

  test("says where it could not be written", async () => {
    await writeFile(join(directory, "file"), "");
    const attempt = prepareCertificate({ directory: join(directory, "file"), domain: DOMAIN, log });
    expect((await refusal(attempt)).message).toContain(join(directory, "file"));
  });
});

test("the CA cannot vouch for other names", async () => {
  const authority = await issueAuthority(DOMAIN, Date.now());
  const stolen = await issueServerCertificate(authority, "bank.test", Date.now());
  expect(await handshake(stolen, "bank.test", authority.certificate)).toBe("permitted subtree violation");
});

test("other programs read the certificates as they are meant", async ({ skip }) => {
  const { caPath } = await prepare();
  const folder = join(directory, DOMAIN);
  const openssl = (...args: string[]) => execFileSync("openssl", args, { encoding: "utf8" });
  try {
    openssl("version");
  } catch {
    skip("openssl is not installed");
  }
  expect(openssl("verify", "-x509_strict", "-CAfile", caPath, join(folder, "server.pem"))).toContain("OK");
  const ca = openssl("x509", "-in", caPath, "-noout", "-text");
  expect(ca).toMatch(/Name Constraints: critical\s+Permitted:\s+DNS:sandbox\.example\.test\s+Excluded:/);
  expect(ca).toContain("CA:TRUE, pathlen:0");
  const server = openssl("x509", "-in", join(folder, "server.pem"), "-noout", "-text");
  expect(server).toContain(`DNS:${DOMAIN}, DNS:api.${DOMAIN}, DNS:*.${DOMAIN}`);
  expect(server).toContain("TLS Web Server Authentication");
});

describe("a certificate of yours", () => {
  async function write(pair: { certificate: string; key: string }) {
    const [certificatePath, keyPath] = [join(directory, "cert.pem"), join(directory, "key.pem")];
    await writeFile(certificatePath, pair.certificate);
    await writeFile(keyPath, pair.key);
    return { certificatePath, keyPath };
  }

  const issue = async (nowMs = Date.now()) =>
    issueServerCertificate(await issueAuthority(DOMAIN, nowMs), DOMAIN, nowMs);

  test("is taken with its chain as it is", async () => {
    const authority = await issueAuthority(DOMAIN, Date.now());
    const pair = await issueServerCertificate(authority, DOMAIN, Date.now());
    const chain = pair.certificate + authority.certificate;
    const loaded = await loadCertificate(await write({ certificate: chain, key: pair.key }));
    expect(loaded).toMatchObject({ certificate: chain, key: pair.key });
    expect(loaded.covers(`1-a.${DOMAIN}`)).toBe(true);
    expect(loaded.covers("other.test")).toBe(false);
    expect(loaded.expiresAt.getTime()).toBeGreaterThan(Date.now() + 390 * DAY_MS);
    const reversed = await write({ certificate: authority.certificate + pair.certificate, key: pair.key });
    expect((await refusal(loadCertificate(reversed))).hint).toContain("chain in front");
  });

  test("is refused by name when a file is missing, unreadable or no PEM", async () => {
    const paths = await write(await issue());
    const missing = await refusal(loadCertificate({ ...paths, certificatePath: "/nowhere/c.pem" }));
    expect(missing.message).toContain("tlsCertificate: /nowhere/c.pem cannot be read (ENOENT");
    expect((await refusal(loadCertificate({ ...paths, keyPath: directory }))).message).toContain("tlsKey: ");
    const swapped = { certificatePath: paths.keyPath, keyPath: paths.certificatePath };
    expect((await refusal(loadCertificate(swapped))).message).toContain("holds no certificate");
    const noKey = { ...paths, keyPath: paths.certificatePath };
    expect((await refusal(loadCertificate(noKey))).message).toContain("holds no private key");
    await writeFile(paths.keyPath, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
    expect((await refusal(loadCertificate(paths))).message).toContain("passphrase");
  });

  test("is refused when the key is another's", async () => {
    const paths = await write({ certificate: (await issue()).certificate, key: (await issue()).key });
    const error = await refusal(loadCertificate(paths));
    expect(error.message).toBe(`tlsKey: ${paths.keyPath} does not belong to ${paths.certificatePath}`);
  });

  test("is refused when it has expired or is not valid yet", async () => {
    const old = await write(await issue(Date.now() - 400 * DAY_MS));
    expect((await refusal(loadCertificate(old))).message).toContain("expired on");
    const early = await write(await issue(Date.now() + 2 * DAY_MS));
    expect((await refusal(loadCertificate(early))).message).toContain("is valid only from");
  });

  test("is what the configuration asks for", async () => {
    const paths = await write(await issue());
    const files = { ...defaultConfig(), tls: "files", tlsCertificate: paths.certificatePath, tlsKey: paths.keyPath };
    const ask = (change: object) => serverCertificate({ config: { ...defaultConfig(), ...change }, directory, log });
    expect(await ask({})).toBeUndefined();
    expect(await ask({ ...files, domain: DOMAIN })).toMatchObject({ caPath: null });
    expect(logged).toEqual([]);
    await ask({ ...files, domain: "other.test" });
    expect(logged).toEqual(["the certificate is not for these names, and clients will refuse them"]);
    expect(await ask({ tls: "self", domain: DOMAIN })).toMatchObject({ caPath: join(directory, DOMAIN, "ca.pem") });
  });
});
