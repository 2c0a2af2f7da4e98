import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { configFields } from "./fields.js";
import { type LoadConfigOptions, loadConfig } from "./load.js";
import { printConfig } from "./print.js";
import { defaultConfig } from "./schema.js";

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-config-"));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function writeConfig(content: unknown): string {
  const path = join(directory, "holdfast.json");
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

function load(options: Partial<LoadConfigOptions> = {}) {
  return loadConfig({ env: {}, ...options });
}

function refusal(options: Partial<LoadConfigOptions>): HoldfastError {
  try {
    load(options);
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  throw new Error("it was taken");
}

describe("settings", () => {
  test("have defaults", () => {
    expect(load()).toEqual(defaultConfig());
    expect(defaultConfig()).toMatchObject({
      host: "127.0.0.1",
      port: 3000,
      domain: null,
      tls: "off",
      stateDirectory: "/var/lib/holdfast",
      pool: "btrfs",
      templates: { base: { host: true } },
      sandboxCpus: Math.min(2, availableParallelism()),
      keyRequestsPerSecond: 1000,
      logLevel: "info",
    });
  });

  test("come from the file, then the environment, then the flags", () => {
    const file = writeConfig({ port: 1, sandboxPids: 100, logLevel: "debug" });
    const env = { HOLDFAST_SERVE_PORT: "2", HOLDFAST_SERVE_SANDBOX_PIDS: "200" };
    expect(load({ file, env, flags: { port: "3", host: undefined } })).toMatchObject({
      port: 3,
      sandboxPids: 200,
      logLevel: "debug",
      host: "127.0.0.1",
    });
  });

  test("are read from the file that HOLDFAST_CONFIG names, unless a flag names another", () => {
    const file = writeConfig({ port: 77 });
    expect(load({ env: { HOLDFAST_CONFIG: file } }).port).toBe(77);
    expect(load({ env: { HOLDFAST_CONFIG: "/nowhere" }, file }).port).toBe(77);
    expect(load({ env: { HOLDFAST_CONFIG: "" } }).port).toBe(3000);
  });

  test("are read as text in the environment and on the command line", () => {
    const env = {
      HOLDFAST_STATE_DIR: "/srv/state",
      HOLDFAST_POOL: "dir",
      HOLDFAST_SERVE_ALLOW_PLAIN_HTTP: "1",
      HOLDFAST_SERVE_SANDBOX_CPUS: "0.5",
      HOLDFAST_SERVE_KEY_REQUESTS_PER_SECOND: "none",
      HOLDFAST_SERVE_TEMPLATES: '{"py":{"rootfs":"/srv/py","memoryMb":1024}}',
      HOLDFAST_SERVE_LOG_LEVEL: "",
      HOLDFAST_DEBUG: "1",
      HOME: "/root",
    };
    expect(load({ env, flags: { host: "0.0.0.0", domain: "Sandbox.Example.COM" } })).toMatchObject({
      stateDirectory: "/srv/state",
      pool: "dir",
      allowPlainHttp: true,
      sandboxCpus: 0.5,
      keyRequestsPerSecond: null,
      templates: { base: { host: true }, py: { rootfs: "/srv/py", memoryMb: 1024 } },
      logLevel: "info",
      domain: "sandbox.example.com",
    });
  });

  test("that are paths start from the file's directory or from the working directory", () => {
    const file = writeConfig({ tls: "files", tlsCertificate: "tls/cert.pem", tlsKey: "/abs/key.pem" });
    const config = load({ file, env: { HOLDFAST_STATE_DIR: "state" } });
    expect(config.tlsCertificate).toBe(join(directory, "tls/cert.pem"));
    expect(config.tlsKey).toBe("/abs/key.pem");
    expect(config.stateDirectory).toBe(resolve("state"));
  });

  test("let --tls alone mean the certificate there is, else our own", () => {
    expect(load({ flags: { tls: true, domain: "a.test" } }).tls).toBe("self");
    const files = { tlsCertificate: "/c.pem", tlsKey: "/k.pem" };
    expect(load({ flags: { tls: true, ...files } }).tls).toBe("files");
    expect(refusal({ file: writeConfig({ tls: true }) }).message).toContain(
      "expected one of off, self, files, got true",
    );
  });

  test("let base be something else than the host", () => {
    const templates = { base: { rootfs: "/srv/base", pids: 64 } };
    expect(load({ file: writeConfig({ templates }) }).templates).toEqual(templates);
  });

  test("cannot be changed afterwards", () => {
    expect(Object.isFrozen(load())).toBe(true);
  });
});

describe("a wrong value", () => {
  test("is refused with its name, what was expected, and where it came from", () => {
    const file = writeConfig({ port: "many" });
    expect(refusal({ file }).message).toBe(`port: expected a port from 0 to 65535, got "many", from "port" in ${file}`);
    expect(refusal({ env: { HOLDFAST_SERVE_PORT: "65536" } }).message).toBe(
      "port: expected a port from 0 to 65535, got 65536, from the variable HOLDFAST_SERVE_PORT",
    );
    expect(refusal({ flags: { stateDirectory: "" } }).message).toBe(
      'stateDirectory: expected an absolute path, got "", from --state-dir',
    );
    expect(refusal({ env: { HOLDFAST_POOL: "zfs" } }).message).toBe(
      'pool: expected one of btrfs, dir, got "zfs", from the variable HOLDFAST_POOL',
    );
  });

  test("does not hide another one", () => {
    const error = refusal({ flags: { port: -1, logLevel: "loud" } });
    expect(error.message.split("\n")).toHaveLength(2);
    expect(error.details.problems).toMatchObject([{ field: "port" }, { field: "logLevel" }]);
  });

  test.each([
    ["host", "not a host!"],
    ["host", ""],
    ["host", 5],
    ["port", 1.5],
    ["port", null],
    ["port", "0x10"],
    ["domain", "has space.test"],
    ["domain", "a.test:3000"],
    ["domain", "127.0.0.1"],
    ["domain", "-a.test"],
    ["domain", "a..test"],
    ["domain", "a.test."],
    ["domain", `${"a".repeat(64)}.test`],
    ["domain", `${"a.".repeat(120)}test`],
    ["tls", "on"],
    ["allowPlainHttp", "maybe"],
    ["stateDirectory", "/a\0b"],
    ["sandboxMemoryMb", 7],
    ["sandboxMemoryMb", 2 ** 40],
    ["sandboxCpus", 0],
    ["sandboxPids", 7],
    ["sandboxDiskMb", 0],
    ["sandboxOutputKb", 16_385],
    ["maxTimeoutSeconds", 2_592_001],
    ["keySandboxes", 0],
    ["keyMemoryMb", "unlimited"],
    ["keyRequestsPerSecond", 0],
    ["sampleSeconds", 0],
    ["sampleRetentionHours", -1],
    ["endedRetentionHours", 10_000],
    ["drainSeconds", "soon"],
    ["logLevel", "loud"],
    ["templates", "{"],
    ["templates", []],
  ])("of %s is refused: %j", (field, value) => {
    expect(refusal({ flags: { [field]: value } }).details.field).toBe(field);
  });

  test.each([
    ["buildAllow", "example.com"],
    ["buildAllow", "10.1.2.3:0"],
    ["buildDeny", "10.0.0.0/33"],
    ["buildDeny", "::1"],
  ])("of %s is refused by its place: %j", (field, value) => {
    expect(refusal({ flags: { [field]: ["10.1.2.3", value] } }).message).toContain(
      `${field}.1: expected an IPv4 address`,
    );
  });

  test.each([
    [{ "bad name": { host: true } }, "templates.bad name: expected a name of letters"],
    [{ "../up": { host: true } }, "templates.../up: expected a name of letters"],
    [{ py: {} }, "templates.py: expected one of rootfs (an absolute path), host (true) and image (a name)"],
    [{ py: { host: true, rootfs: "/a" } }, "templates.py: expected one of rootfs"],
    [{ py: { host: false } }, "templates.py.host: expected true, got false"],
    [{ py: { rootfs: "relative" } }, "templates.py.rootfs: expected an absolute path"],
    [{ py: { host: true, memoryMb: 1 } }, "templates.py.memoryMb: expected a whole number of MiB from 8"],
    [{ py: { host: true, memoryMB: 100 } }, 'there is no setting "memoryMB"; did you mean memoryMb?'],
    [{ py: "rootfs" }, "templates.py: expected an object such as"],
  ])("of templates is refused by name: %j", (templates, message) => {
    expect(refusal({ file: writeConfig({ templates }) }).message).toContain(message);
  });
});

describe("an unknown name", () => {
  test("in the file is refused, with the one that was meant", () => {
    const file = writeConfig({ prot: 1, maxTimeout: 5, colour: "blue" });
    const error = refusal({ file });
    expect(error.message.split("\n")).toEqual([
      `${file}: there is no setting "prot"; did you mean port?`,
      `${file}: there is no setting "maxTimeout"; did you mean maxTimeoutSeconds?`,
      `${file}: there is no setting "colour"`,
    ]);
    expect(error.hint).toContain("There are: host, port, domain");
  });

  test("in the environment is refused if it begins like ours", () => {
    const error = refusal({ env: { HOLDFAST_SERVE_PROT: "1" } });
    expect(error.message).toBe(
      'the environment: there is no setting "HOLDFAST_SERVE_PROT"; did you mean HOLDFAST_SERVE_PORT?',
    );
    expect(refusal({ env: { HOLDFAST_SERVE_STATE_DIR: "" } }).message).toContain("did you mean HOLDFAST_STATE_DIR?");
  });

  test("among the flags is refused", () => {
    expect(refusal({ flags: { hots: "x" } }).message).toContain("did you mean host?");
  });

  test("cannot slip through as __proto__", () => {
    expect(refusal({ file: writeConfig('{"__proto__": {"port": 1}}') }).message).toContain("__proto__");
    expect(refusal({ file: writeConfig('{"templates": {"__proto__": {"host": true}}}') }).message).toContain(
      "__proto__",
    );
    expect(refusal({ env: { HOLDFAST_SERVE_TEMPLATES: '{"__proto__":{"host":true}}' } }).details.field).toBe(
      "templates",
    );
    expect(refusal({ file: writeConfig({ constructor: 1 }) }).message).toContain('there is no setting "constructor"');
  });
});

describe("a file", () => {
  test.each([
    ["{", "is not JSON"],
    ["[]", "is not a JSON object"],
    ["null", "is not a JSON object"],
    ["", "is not JSON"],
  ])("that holds %j is refused", (content, message) => {
    const error = refusal({ file: writeConfig(content) });
    expect(error.message).toContain(message);
    expect(error.message).toContain("named by --config");
  });

  test("that is not there is refused with who named it", () => {
    const error = refusal({ env: { HOLDFAST_CONFIG: "/nowhere/holdfast.json" } });
    expect(error.message).toContain("/nowhere/holdfast.json (named by HOLDFAST_CONFIG) cannot be read");
    expect(refusal({ file: directory }).message).toContain("cannot be read");
  });
});

describe("settings that do not go together", () => {
  test("a certificate of our own needs a domain", () => {
    const error = refusal({ flags: { tls: "self" } });
    expect(error.message).toBe('tls ("self", from --tls): a certificate of our own needs a name to be for');
  });

  test("a certificate of our own needs a domain of two words", () => {
    expect(refusal({ flags: { tls: "self", domain: "localhost" } }).hint).toContain("sandbox.localhost");
    expect(load({ flags: { domain: "localhost" } }).domain).toBe("localhost");
  });

  test("certificate files come both and only with tls files", () => {
    expect(refusal({ flags: { tls: "files" } }).message).toContain('tlsCertificate: is needed with tls "files"');
    expect(refusal({ flags: { tls: "files", tlsCertificate: "/c" } }).details.field).toBe("tlsKey");
    expect(refusal({ flags: { tlsKey: "/k" } }).message).toContain('has no use with tls "off"');
    expect(refusal({ flags: { tls: "self", domain: "a.test", tlsKey: "/k" } }).details.field).toBe("tlsKey");
  });

  test.each(["0.0.0.0", "::", "192.168.1.5", "example.com", "::ffff:127.0.0.1", "127.example.com"])(
    "without TLS, %s needs leave",
    (host) => {
      const error = refusal({ flags: { host } });
      expect(error.details.field).toBe("host");
      expect(error.hint).toContain("allowPlainHttp");
      expect(load({ flags: { host, allowPlainHttp: true, domain: "a.test" } }).host).toBe(host);
      expect(load({ flags: { host, tls: "self", domain: "a.test" } }).host).toBe(host);
    },
  );

  test.each(["127.0.0.1", "127.9.9.9", "::1", "localhost"])("%s is this machine, with or without a domain", (host) => {
    expect(load({ flags: { host } }).host).toBe(host);
    expect(load({ flags: { host, domain: "a.test" } }).domain).toBe("a.test");
  });
});

describe("the printed configuration", () => {
  test("has each value, what it means, and where it came from", () => {
    const file = writeConfig({ port: 5 });
    const config = load({ file, env: { HOLDFAST_STATE_DIR: "/s" }, flags: { logLevel: "warn" } });
    const printed = JSON.parse(printConfig(config)) as Record<string, { value: unknown; from: string }>;
    expect(Object.keys(printed)).toEqual(configFields.map(({ field }) => field));
    expect(printed.port).toMatchObject({ value: 5, from: `"port" in ${file}`, flag: "--port" });
    expect(printed.stateDirectory).toMatchObject({ value: "/s", from: "the variable HOLDFAST_STATE_DIR" });
    expect(printed.logLevel).toMatchObject({ value: "warn", from: "--log-level" });
    expect(printed.host).toMatchObject({ value: "127.0.0.1", from: "the default", variable: "HOLDFAST_SERVE_HOST" });
  });

  test("explains every setting", () => {
    for (const { field, description } of configFields) expect(description, field).toMatch(/^[A-Z].{10,}/);
    expect(new Set(configFields.map(({ flag }) => flag)).size).toBe(configFields.length);
  });

  test("gives back the same configuration when it is read again", () => {
    const config = load({ flags: { tls: "self", domain: "a.test", keySandboxes: 3 } });
    const printed = JSON.parse(printConfig(config)) as Record<string, { value: unknown }>;
    const file = writeConfig(Object.fromEntries(Object.entries(printed).map(([field, { value }]) => [field, value])));
    expect(load({ file })).toEqual(config);
  });
});

test("each kind of setting is known from the schema", () => {
  const kinds = Object.fromEntries(
    configFields.map(({ field, kind, nullable }) => [field, nullable ? `${kind}?` : kind]),
  );
  expect(kinds).toMatchObject({
    host: "text",
    port: "number",
    domain: "text?",
    tls: "choice",
    tlsKey: "path?",
    allowPlainHttp: "boolean",
    stateDirectory: "path",
    templates: "object",
    sandboxCpus: "number",
    keyRequestsPerSecond: "number?",
  });
  expect(configFields.find(({ field }) => field === "tls")?.choices).toEqual(["off", "self", "files"]);
});
