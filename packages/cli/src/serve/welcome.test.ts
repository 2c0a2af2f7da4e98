import { expect, test } from "vitest";
import { coloursFor } from "../text/colours.js";
import { type ServerFacts, welcomeText } from "./welcome.js";

const plain = coloursFor({ isTTY: false });
const facts: ServerFacts = {
  url: "http://127.0.0.1:3000",
  domain: null,
  caPath: null,
  firstKey: "e2b_0123456789abcdef0123456789abcdef01234567",
  keys: [],
  adopted: 0,
};

test("the first start shows the key and the lines to paste", () => {
  expect(welcomeText(facts, plain, "holdfast")).toMatchInlineSnapshot(`
    "Holdfast is ready at http://127.0.0.1:3000

    API key
      e2b_0123456789abcdef0123456789abcdef01234567
      Shown once and stored hashed: keep it.

    Paste this where your program runs
      export E2B_API_URL=http://127.0.0.1:3000
      export E2B_SANDBOX_URL=http://127.0.0.1:3000
      export E2B_VOLUME_API_URL=http://127.0.0.1:3000
      export E2B_API_KEY=e2b_0123456789abcdef0123456789abcdef01234567

    JavaScript: npm i e2b; node hello.mjs
      import { Sandbox } from "e2b";
      const sandbox = await Sandbox.create();
      const { stdout } = await sandbox.commands.run("echo hello from $(uname -s)");
      console.log(stdout);
      await sandbox.kill();

    Python: pip install e2b; python3 hello.py
      from e2b import Sandbox
      sandbox = Sandbox.create()
      result = sandbox.commands.run("echo hello from $(uname -s)")
      print(result.stdout)
      sandbox.kill()

    Ctrl-C stops the server. Sandboxes run on, and the next start takes them over.
    "
  `);
});

test("later starts show how to recognise the keys, and what was taken over", () => {
  const text = welcomeText(
    {
      ...facts,
      firstKey: null,
      keys: [{ name: "first", hint: "e2b_0123…4567", createdAt: new Date(2026, 0, 2) }],
      adopted: 3,
    },
    plain,
    "sudo holdfast",
  );
  expect(text).toContain("3 sandboxes were taken over from an earlier run.");
  expect(text).toContain("  e2b_0123…4567  first, made 2026-01-02\n  `sudo holdfast key create NAME` makes another.");
  expect(text).toContain("export E2B_API_KEY=e2b_…");
});

test("with a domain and TLS the SDKs are given the domain and whom to trust", () => {
  const text = welcomeText(
    {
      ...facts,
      url: "https://api.sandbox.test:3000",
      domain: "sandbox.test:3000",
      caPath: "/var/lib/holdfast/server/ca.pem",
    },
    plain,
    "holdfast",
  );
  expect(text).toContain("export E2B_DOMAIN=sandbox.test:3000\n");
  expect(text).not.toContain("E2B_API_URL");
  expect(text).toContain("export NODE_EXTRA_CA_CERTS=/var/lib/holdfast/server/ca.pem");
  expect(text).toContain("export SSL_CERT_FILE=/var/lib/holdfast/server/ca.pem");
});

test("an address that stands for all of them is not one to call", () => {
  expect(welcomeText({ ...facts, url: "http://0.0.0.0:3000" }, plain, "holdfast")).toContain(
    "export E2B_API_URL=http://127.0.0.1:3000\n",
  );
});

test("no line is wider than a terminal", () => {
  const widest = Math.max(
    ...welcomeText(facts, plain, "holdfast")
      .split("\n")
      .map((line) => line.length),
  );
  expect(widest).toBeLessThanOrEqual(80);
});
