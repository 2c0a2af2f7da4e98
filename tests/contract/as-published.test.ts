/** What the server prints for pasting is enough: a program of its own, and nothing but the environment. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { useServer } from "../helpers/use-server.js";

const PROGRAM = fileURLToPath(new URL("fixtures/as-published.mjs", import.meta.url));
const NAMES = new URL("../helpers/resolve-names.mjs", import.meta.url).href;

async function runProgram(sdk: string, env: Record<string, string>): Promise<unknown> {
  const { stdout } = await promisify(execFile)(process.execPath, ["--import", NAMES, PROGRAM, sdk], {
    env: { PATH: process.env.PATH, ...env },
  });
  return JSON.parse(stdout);
}

const expected = { stdout: "hello from user\n", content: "hello", linked: "hello", found: true };

describe.each(["e2b", "e2b-v1-paths"])("a program with %s", (sdk) => {
  describe("and one address", () => {
    const server = useServer();
    it("needs two variables and the key", async () => {
      const env = {
        E2B_API_KEY: server.apiKey,
        E2B_API_URL: server.url,
        E2B_SANDBOX_URL: server.url,
        E2B_VOLUME_API_URL: server.url,
      };
      expect(await runProgram(sdk, env)).toEqual(expected);
    });
  });

  describe("and a domain", () => {
    const server = useServer({ tls: true });
    it("needs one variable, the key and the certificate", async () => {
      const env = {
        E2B_API_KEY: server.apiKey,
        E2B_DOMAIN: String(server.domain),
        NODE_EXTRA_CA_CERTS: String(server.caPath),
      };
      expect(await runProgram(sdk, env)).toEqual(expected);
    });
  });
});
