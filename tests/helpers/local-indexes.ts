/**
 * Where apt, npm and pip find packages without the Internet: three indexes with one hand-made package each, served over HTTP
 * on an address of this host that a build may be allowed to reach.
 */
import { execFileSync } from "node:child_process";
import { createHash, randomInt } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { OUR_DIRECTORIES } from "./leaks.js";

export interface LocalIndexes {
  /** What `network.allow` has to name. */
  readonly allow: string;
  /** A line for sources.list; its package is `hf-greeter`, whose program of that name says `hello from apt 1.2`. */
  readonly aptSource: string;
  /** Its package is `hf-shouter`, whose program of that name says `HELLO FROM NPM 2.1.0`. */
  readonly npmRegistry: string;
  /** Its package is `hf-counter`, which has versions 1.9 and 2.31; `hf_counter.VERSION` is the one installed. */
  readonly pipIndex: string;
  /** Paths that were asked for, since the beginning. */
  readonly requests: readonly string[];
  close(): Promise<void>;
}

type Answer = (response: ServerResponse) => void;

export async function startLocalIndexes(): Promise<LocalIndexes> {
  const answers = new Map<string, Answer>();
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://index").pathname);
    requests.push(path);
    const answer = answers.get(path);
    if (answer === undefined) response.writeHead(404).end("not found\n");
    else answer(response);
  });
  const address = addAddress();
  const directory = mkdtempSync(OUR_DIRECTORIES);
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    rmSync(directory, { recursive: true, force: true });
    removeAddress(address);
  };
  try {
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(0, address, resolve));
    const origin = `http://${address}:${(server.address() as AddressInfo).port}`;
    addAptRepository(answers, directory);
    addNpmRegistry(answers, directory, `${origin}/npm`);
    addPipIndex(answers, directory);
    return {
      allow: `${address}/32`,
      aptSource: `deb [trusted=yes] ${origin}/apt ./`,
      npmRegistry: `${origin}/npm/`,
      pipIndex: `${origin}/simple/`,
      requests,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Not loopback's own, which every sandbox has for itself; and another one for each test run on this machine. */
function addAddress(): string {
  const address = `10.231.${randomInt(1, 255)}.${randomInt(1, 255)}`;
  execFileSync("ip", ["address", "add", `${address}/32`, "dev", "lo"]);
  return address;
}

function removeAddress(address: string): void {
  execFileSync("ip", ["address", "del", `${address}/32`, "dev", "lo"]);
}

const body =
  (content: Buffer | string, type = "application/octet-stream"): Answer =>
  (response) =>
    void response.writeHead(200, { "content-type": type, "content-length": Buffer.byteLength(content) }).end(content);

const hash = (algorithm: string, content: Buffer, encoding: "hex" | "base64" = "hex"): string =>
  createHash(algorithm).update(content).digest(encoding);

function writeProgram(path: string, text: string): void {
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  chmodSync(path, 0o755);
}

/** The simplest form of a repository: everything in one directory. */
function addAptRepository(answers: Map<string, Answer>, directory: string): void {
  const root = join(directory, "hf-greeter");
  const file = join(directory, "hf-greeter_1.2_all.deb");
  const control =
    "Package: hf-greeter\nVersion: 1.2\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: says hello\n";
  mkdirSync(join(root, "DEBIAN"), { recursive: true });
  writeFileSync(join(root, "DEBIAN/control"), control);
  writeProgram(join(root, "usr/bin/hf-greeter"), "#!/bin/sh\necho hello from apt 1.2\n");
  execFileSync("dpkg-deb", ["--root-owner-group", "--build", root, file], { stdio: "pipe" });
  const archive = readFileSync(file);
  const packages = `${control}Filename: ./hf-greeter_1.2_all.deb\nSize: ${archive.length}\nSHA256: ${hash("sha256", archive)}\n\n`;
  const release = [
    "Origin: holdfast tests",
    "Suite: stable",
    `Date: ${new Date().toUTCString().replace("GMT", "UTC")}`,
    "SHA256:",
    ` ${hash("sha256", Buffer.from(packages))} ${packages.length} Packages`,
    "",
  ].join("\n");
  for (const at of ["/apt", "/apt/."]) {
    answers.set(`${at}/Packages`, body(packages, "text/plain"));
    answers.set(`${at}/Release`, body(release, "text/plain"));
    answers.set(`${at}/hf-greeter_1.2_all.deb`, body(archive));
  }
}

function addNpmRegistry(answers: Map<string, Answer>, directory: string, url: string): void {
  const root = join(directory, "npm");
  const manifest = { name: "hf-shouter", version: "2.1.0", bin: { "hf-shouter": "shout.js" } };
  mkdirSync(join(root, "package"), { recursive: true });
  writeFileSync(join(root, "package/package.json"), JSON.stringify(manifest));
  writeProgram(
    join(root, "package/shout.js"),
    '#!/usr/bin/env node\nconsole.log("HELLO FROM NPM " + require("./package.json").version);\n',
  );
  const file = join(directory, "hf-shouter-2.1.0.tgz");
  execFileSync("tar", ["-czf", file, "-C", root, "package"]);
  const archive = readFileSync(file);
  const dist = {
    tarball: `${url}/hf-shouter/-/hf-shouter-2.1.0.tgz`,
    shasum: hash("sha1", archive),
    integrity: `sha512-${hash("sha512", archive, "base64")}`,
  };
  const packument = {
    name: "hf-shouter",
    "dist-tags": { latest: "2.1.0" },
    versions: { "2.1.0": { ...manifest, dist } },
  };
  answers.set("/npm/hf-shouter", body(JSON.stringify(packument), "application/json"));
  answers.set("/npm/hf-shouter/-/hf-shouter-2.1.0.tgz", body(archive));
}

const MAKE_WHEEL = `
import sys, zipfile
path, version = sys.argv[1:]
info = "hf_counter-%s.dist-info" % version
files = {
    "hf_counter/__init__.py": "VERSION = %r\\n" % version,
    info + "/METADATA": "Metadata-Version: 2.1\\nName: hf-counter\\nVersion: %s\\n" % version,
    info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}
files[info + "/RECORD"] = "".join("%s,,\\n" % name for name in [*files, info + "/RECORD"])
with zipfile.ZipFile(path, "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
`;

function addPipIndex(answers: Map<string, Answer>, directory: string): void {
  const links = ["1.9", "2.31"].map((version) => {
    const name = `hf_counter-${version}-py3-none-any.whl`;
    execFileSync("python3", ["-c", MAKE_WHEEL, join(directory, name), version]);
    const wheel = readFileSync(join(directory, name));
    answers.set(`/wheels/${name}`, body(wheel));
    return `<a href="../../wheels/${name}#sha256=${hash("sha256", wheel)}">${name}</a>`;
  });
  const page = `<!DOCTYPE html><html><body>${links.join("\n")}</body></html>`;
  answers.set("/simple/hf-counter/", body(page, "text/html"));
}
