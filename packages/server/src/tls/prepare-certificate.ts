/**
 * A certificate from a CA of our own. The CA is made once for each domain and kept, because its users have told their
 * machines to trust it; it can vouch for that domain only. The server's certificate is made again whenever it is due.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { chmod, mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Issued } from "./issue.js";
import { readIfThere, writeAtomically } from "./key-files.js";

export interface PreparedCertificate {
  /** The server's, then the CA's, PEM. */
  readonly certificate: string;
  readonly key: string;
  /** What clients must trust. */
  readonly caPath: string;
  /** Whether the CA is new, and nobody can trust it yet. */
  readonly made: boolean;
}

export interface PrepareCertificateOptions {
  readonly directory: string;
  readonly domain: string;
  readonly log: Log;
  /** Milliseconds since 1970. */
  readonly now?: (() => number) | undefined;
}

const RENEW_BEFORE_MS = 30 * 24 * 3600 * 1000;
const PRIVATE = 0o600;
const PUBLIC = 0o644;
const FOLDER_NAME = /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/;

function isDue(certificate: X509Certificate, nowMs: number): boolean {
  return Date.parse(certificate.validTo) - nowMs < RENEW_BEFORE_MS || Date.parse(certificate.validFrom) > nowMs;
}

async function readPair(certificatePath: string, keyPath: string): Promise<Issued | undefined> {
  const [certificate, key] = await Promise.all([readIfThere(certificatePath), readIfThere(keyPath)]);
  return certificate === undefined || key === undefined ? undefined : { certificate, key };
}

function parseAuthority(pair: Issued, directory: string): X509Certificate {
  try {
    const certificate = new X509Certificate(pair.certificate);
    if (certificate.checkPrivateKey(createPrivateKey(pair.key))) return certificate;
  } catch (error) {
    throw damagedAuthority(directory, error);
  }
  throw damagedAuthority(directory, undefined);
}

function damagedAuthority(directory: string, cause: unknown): HoldfastError {
  return new HoldfastError("engine_fault", `the CA in ${directory} cannot be used: ca.pem and ca.key do not match`, {
    hint: `Bring back a copy, or remove ${directory} to make a new CA, which every client must then be told to trust.`,
    details: { directory },
    cause,
  });
}

async function writePair(pair: Issued, certificatePath: string, keyPath: string): Promise<void> {
  // The certificate last: it is what says that the pair is there.
  await writeAtomically(keyPath, pair.key, PRIVATE);
  await writeAtomically(certificatePath, pair.certificate, PUBLIC);
}

async function prepareAuthority(
  options: { readonly folder: string; readonly domain: string; readonly log: Log },
  nowMs: number,
): Promise<{ readonly pair: Issued; readonly certificate: X509Certificate; readonly made: boolean }> {
  const { folder, domain, log } = options;
  const caPath = join(folder, "ca.pem");
  const keyPath = join(folder, "ca.key");
  if ((await readIfThere(caPath)) !== undefined) {
    const pair = await readPair(caPath, keyPath);
    if (pair === undefined) throw damagedAuthority(folder, undefined);
    const certificate = parseAuthority(pair, folder);
    await chmod(keyPath, PRIVATE);
    if (!isDue(certificate, nowMs)) return { pair, certificate, made: false };
    log.warn({ caPath, validTo: certificate.validTo }, "our CA is at the end of its time; a new one is made");
  }
  const { issueAuthority } = await import("./issue.js");
  const pair = await issueAuthority(domain, nowMs);
  await writePair(pair, caPath, keyPath);
  log.info({ caPath, domain }, "made a CA of our own");
  return { pair, certificate: new X509Certificate(pair.certificate), made: true };
}

/** Whether the certificate there is still serves: whole, signed by this CA, for these names, and not nearly over. */
function isUsable(pair: Issued, authority: X509Certificate, domain: string, nowMs: number): boolean {
  try {
    const certificate = new X509Certificate(pair.certificate);
    return (
      certificate.checkPrivateKey(createPrivateKey(pair.key)) &&
      certificate.verify(authority.publicKey) &&
      [domain, `api.${domain}`, `any.${domain}`].every((name) => certificate.checkHost(name) !== undefined) &&
      !isDue(certificate, nowMs)
    );
  } catch {
    // It cannot even be read; a new one is made in its place.
    return false;
  }
}

export async function prepareCertificate(options: PrepareCertificateOptions): Promise<PreparedCertificate> {
  const { directory, domain, log } = options;
  if (!FOLDER_NAME.test(domain) || domain.includes("..") || !domain.includes(".")) {
    throw invalidArgument("domain", domain, "a DNS name of two words or more");
  }
  const nowMs = (options.now ?? Date.now)();
  const folder = join(directory, domain);
  try {
    await mkdir(folder, { recursive: true, mode: 0o755 });
    const authority = await prepareAuthority({ folder, domain, log }, nowMs);
    const certificatePath = join(folder, "server.pem");
    const keyPath = join(folder, "server.key");
    let pair = await readPair(certificatePath, keyPath);
    if (pair === undefined || !isUsable(pair, authority.certificate, domain, nowMs)) {
      const { issueServerCertificate } = await import("./issue.js");
      pair = await issueServerCertificate(authority.pair, domain, nowMs);
      await writePair(pair, certificatePath, keyPath);
      log.info({ certificatePath, domain }, "made a certificate");
    }
    await chmod(keyPath, PRIVATE);
    return {
      certificate: pair.certificate + authority.pair.certificate,
      key: pair.key,
      caPath: join(folder, "ca.pem"),
      made: authority.made,
    };
  } catch (error) {
    if (error instanceof HoldfastError) throw error;
    const said = error instanceof Error ? error.message : String(error);
    throw new HoldfastError("engine_fault", `no certificate could be made in ${folder}: ${said}`, { cause: error });
  }
}
