import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "./canonical-json.js";
import { Image } from "./image.js";
import { parseRecipe } from "./parse-recipe.js";
import type { BlobSource } from "./tree.js";

const HOSTILE = [
  "requests>=2.31",
  "a b",
  "it's",
  '"quoted"',
  "$HOME",
  "$(id)",
  "`id`",
  "a\nb",
  "a && b",
  "; rm -rf /",
  "日本 😀",
  "\\",
];

const anyText = (value: unknown): string => value as string;

async function recipeOf(image: Image): Promise<unknown> {
  const { recipe } = await image.resolve();
  return JSON.parse(canonicalJson(recipe));
}

async function contentOf(blob: BlobSource | undefined): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of blob?.open() ?? []) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test("a declaration becomes the recipe that it says", async () => {
  const image = Image.base()
    .aptInstall(["build-essential", "cmake"])
    .pipInstall(["requests>=2.31"], { indexUrl: "http://127.0.0.1:3141/simple" })
    .npmInstall(["typescript"])
    .env({ A: "1" })
    .workdir("/app/")
    .user("user", { create: true })
    .runCommands("make -j4", "make install")
    .run("set -o pipefail; a | b", { user: "root", shell: ["/bin/bash", "-c"] })
    .exec(["touch", "a b"], { user: "1000" })
    .entrypoint(["/init"])
    .cmd([])
    .expose(8000, "53/udp")
    .label({ a: "b" })
    .startCommand("node server.js", { readyWhen: "port 8000" })
    .builder({ memoryMb: 8192, cpus: 2, diskMb: 20_000, timeoutS: 1800 })
    .runtimeMemory(512)
    .builderMemory(4096);
  const { recipe, blobs, builder } = await image.resolve();
  expect(recipe).toEqual({
    version: 1,
    base: { kind: "base" },
    steps: [
      { kind: "apt", packages: ["build-essential", "cmake"] },
      { kind: "pip", packages: ["requests>=2.31"], indexUrl: "http://127.0.0.1:3141/simple" },
      { kind: "npm", packages: ["typescript"] },
      { kind: "env", variables: { A: "1" } },
      { kind: "workdir", path: "/app" },
      { kind: "user", name: "user", create: true },
      { kind: "run", command: "make -j4" },
      { kind: "run", command: "make install" },
      { kind: "run", command: "set -o pipefail; a | b", user: "root", shell: ["/bin/bash", "-c"] },
      { kind: "exec", argv: ["touch", "a b"], user: "1000" },
      { kind: "entrypoint", argv: ["/init"] },
      { kind: "cmd", argv: [] },
      { kind: "expose", ports: ["8000/tcp", "53/udp"] },
      { kind: "label", labels: { a: "b" } },
    ],
    stages: [],
    start: { command: "node server.js", readyWhen: { kind: "port", port: 8000 } },
  });
  expect(blobs).toEqual([]);
  expect(builder).toEqual({ memoryMb: 4096, cpus: 2, diskMb: 20_000, timeoutS: 1800, runtimeMemoryMb: 512 });
});

test("hostile texts arrive as they are, in every place", async () => {
  const image = Image.base()
    .aptInstall(HOSTILE)
    .pipInstall(HOSTILE)
    .npmInstall(HOSTILE)
    .runCommands(...HOSTILE)
    .exec(["x", ...HOSTILE])
    .env(Object.fromEntries(HOSTILE.map((text, index) => [`V${index}`, text])))
    .cmd(["x", ...HOSTILE])
    .label(Object.fromEntries(HOSTILE.map((text) => [text, text])));
  const { recipe } = await image.resolve();
  const seen = JSON.parse(canonicalJson(parseRecipe(JSON.parse(canonicalJson(recipe))))) as { steps: unknown[] };
  expect(seen.steps[0]).toEqual({ kind: "apt", packages: HOSTILE });
  expect(seen.steps.slice(3, 3 + HOSTILE.length)).toEqual(HOSTILE.map((command) => ({ kind: "run", command })));
  expect(seen).toEqual(JSON.parse(JSON.stringify(recipe)));
});

test("any text without NUL survives as a package, a command, an argument and a variable", async () => {
  const text = fc.string({ unit: "grapheme", minLength: 1 }).filter((value) => !value.includes("\0"));
  await fc.assert(
    fc.asyncProperty(text, async (value) => {
      fc.pre(value.trim() !== "" && !value.startsWith("-"));
      const image = Image.base().pipInstall([value]).run(value).exec(["x", value]).env({ A: value });
      expect((await recipeOf(image)) as object).toMatchObject({
        steps: [{ packages: [value] }, { command: value }, { argv: ["x", value] }, { variables: { A: value } }],
      });
    }),
  );
});

test("every method gives a new image and leaves the old one as it was", () => {
  const packages = ["a"];
  const base = Image.base();
  const one = base.aptInstall(packages);
  packages.push("b");
  const two = one.env({ A: "1" });
  one.builderMemory(4096);
  expect(base.steps).toEqual([]);
  expect(one.steps).toEqual([{ kind: "apt", packages: ["a"] }]);
  expect(two.steps).toHaveLength(2);
  expect(one.builderOptions).toEqual({});
  expect(Object.isFrozen(two.steps)).toBe(true);
});

test("a file that is given here travels as a blob, as does the tree it is in", async () => {
  const bytes = new Uint8Array([0, 255, 10]);
  const image = Image.base()
    .addFile("/etc/a", "ü\n")
    .addFile("b/c", bytes, { mode: 0o755, owner: "user" })
    .addFile("/d", "");
  bytes[0] = 1;
  const { recipe, blobs } = await image.resolve();
  for (const blob of blobs) {
    const content = await contentOf(blob);
    expect(content.length).toBe(blob.sizeBytes);
    expect(`sha256:${createHash("sha256").update(content).digest("hex")}`).toBe(blob.digest);
  }
  const trees = recipe.steps.map((step) =>
    step.kind === "copy" ? blobs.find(({ digest }) => digest === step.tree) : undefined,
  );
  const texts = await Promise.all(
    trees.map(async (blob) => JSON.parse(Buffer.from(await contentOf(blob)).toString()) as unknown),
  );
  const digestOf = (content: string | Uint8Array): string =>
    `sha256:${createHash("sha256").update(content).digest("hex")}`;
  const entry = (content: string | Uint8Array, mode: number): object => ({
    version: 1,
    entries: [{ path: "", type: "file", mode, sizeBytes: Buffer.from(content).length, digest: digestOf(content) }],
  });
  expect(texts).toEqual([entry("ü\n", 0o644), entry(new Uint8Array([0, 255, 10]), 0o755), entry("", 0o644)]);
  expect(recipe.steps).toMatchObject([{ to: "/etc/a" }, { to: "b/c", owner: "user" }, { to: "/d" }]);
});

test("what is copied from another image becomes a stage, once", async () => {
  const tools = Image.from("golang:1.22").runCommands("go build");
  const nested = Image.base().copyFrom(tools, "/go/bin/x", "/x");
  const image = Image.base()
    .copyFrom(tools, ["/go/bin/*", "/b"], "/usr/local/bin/")
    .copyFrom(nested, "/x", "/y", { owner: "root", mode: 0o755 })
    .copyFrom(tools, "/c", "/c")
    .copyFrom("busybox", "bin/busybox", "/bin/", { owner: "user" });
  expect(await recipeOf(image)).toEqual({
    version: 1,
    base: { kind: "base" },
    steps: [
      {
        kind: "copy-from",
        source: { kind: "stage", index: 0 },
        paths: ["/go/bin/*", "/b"],
        to: "/usr/local/bin/",
        owner: "keep",
      },
      { kind: "copy-from", source: { kind: "stage", index: 1 }, paths: ["/x"], to: "/y", mode: 0o755 },
      { kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/c"], to: "/c", owner: "keep" },
      {
        kind: "copy-from",
        source: { kind: "image", name: "busybox" },
        paths: ["/bin/busybox"],
        to: "/bin/",
        owner: "user",
      },
    ],
    stages: [
      { base: { kind: "image", name: "golang:1.22" }, steps: [{ kind: "run", command: "go build" }] },
      {
        base: { kind: "base" },
        steps: [
          { kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/go/bin/x"], to: "/x", owner: "keep" },
        ],
      },
    ],
    start: null,
  });
});

test.each([
  ["port 8000", { kind: "port", port: 8000 }],
  [" Port  80 ", { kind: "port", port: 80 }],
  [{ port: 8000 }, { kind: "port", port: 8000 }],
  ["curl -fs localhost", { kind: "command", command: "curl -fs localhost" }],
  [{ command: "port 8000" }, { kind: "command", command: "port 8000" }],
  [{ seconds: 2.5 }, { kind: "seconds", seconds: 2.5 }],
])("ready when %j", async (condition, expected) => {
  const { recipe } = await Image.base().startCommand("x", { readyWhen: condition }).resolve();
  expect(recipe.start).toEqual({ command: "x", readyWhen: expected });
});

test("what is declared can be looked at", () => {
  const image = Image.fromDockerfile("Dockerfile", { args: { A: "1" } })
    .addFile("/a", "four")
    .addLocalDir("src", "/b");
  expect(JSON.parse(JSON.stringify(image))).toEqual({
    base: { kind: "dockerfile", path: "Dockerfile", args: { A: "1" } },
    steps: [
      { kind: "inline-file", content: "4 bytes", to: "/a" },
      { kind: "local-dir", path: "src", to: "/b", owner: "keep" },
    ],
    start: null,
    builder: {},
  });
});

describe("bad input is refused at once, by the argument's name:", () => {
  const image = Image.base();
  test.each<[string, () => unknown]>([
    ["from.name: expected the name of an image", () => Image.from("")],
    ["from.name: expected the name of an image", () => Image.from(anyText(undefined))],
    ["fromSnapshot.id: expected", () => Image.fromSnapshot("a b")],
    ["fromDockerfile path: expected a path", () => Image.fromDockerfile("")],
    ["fromDockerfile options.file: there is no such field", () => Image.fromDockerfile("a", { file: "b" } as object)],
    ["fromDockerfile args.A: expected a text", () => Image.fromDockerfile("a", { args: { A: anyText(1) } })],
    ["aptInstall.packages: expected at least one item", () => image.aptInstall([])],
    ["aptInstall.packages: expected a list", () => image.aptInstall(anyText("cmake") as unknown as string[])],
    ["aptInstall.packages[0]: expected a package, not an option", () => image.aptInstall(["--allow-downgrades"])],
    ["pipInstall.packages[1]: expected a package, not an option", () => image.pipInstall(["a", "-r"])],
    ["pipInstall options.index: there is no such field", () => image.pipInstall(["a"], { index: "b" } as object)],
    ["npmInstall.registryUrl: expected a URL", () => image.npmInstall(["a"], { registryUrl: "registry" })],
    ["runCommands commands: expected at least one item", () => image.runCommands()],
    ["runCommands commands[1].command: expected a command", () => image.runCommands("a", "")],
    ["run.command: expected a command without NUL bytes", () => image.run("a\0")],
    ["run.user: expected a user", () => image.run("a", { user: "a b" })],
    ["exec.argv: expected at least one item", () => image.exec([])],
    ["addLocalFile path: expected a path", () => image.addLocalFile("", "/a")],
    ["addLocalFile to: expected a path that is not empty", () => image.addLocalFile("a", "")],
    ["addLocalFile.mode: expected a file mode", () => image.addLocalFile("a", "/a", { mode: 99_999 })],
    ["addLocalDir.owner: expected a user", () => image.addLocalDir("a", "/a", { owner: "-R" })],
    [
      "addLocalDir.ignore: expected a list",
      () => image.addLocalDir("a", "/a", { ignore: anyText("x") as unknown as string[] }),
    ],
    ["addLocalDir.exclude: there is no such field", () => image.addLocalDir("a", "/a", { exclude: [] } as object)],
    ["addFile to: expected the path of a file", () => image.addFile("/a/", "x")],
    ["addFile content: expected a text or a Uint8Array, got undefined", () => image.addFile("/a", anyText(undefined))],
    ["copyFrom.paths: expected at least one item", () => image.copyFrom("a", [], "/a")],
    ["copyFrom.source.name: expected", () => image.copyFrom(anyText({}), "/a", "/a")],
    ["env.variables: name: expected", () => image.env({ "A B": "1" })],
    ["env.variables.A: expected a text, got 1", () => image.env({ A: anyText(1) })],
    ["workdir.path: expected a path", () => image.workdir("../a")],
    ["user.name: expected", () => image.user("root;id")],
    ["entrypoint.argv[0]: expected a program", () => image.entrypoint([""])],
    ["expose.ports[0]: expected a port from 1 to 65535", () => image.expose(0)],
    ["expose.ports[0]: expected a port", () => image.expose(65_536)],
    ["expose.ports[0]: expected a port", () => image.expose(1.5)],
    ["startCommand.command: expected a command", () => image.startCommand("")],
    [
      "startCommand.readyWhen: expected a whole number from 1 to 65535",
      () => image.startCommand("a", { readyWhen: "port 0" }),
    ],
    [
      "startCommand.readyWhen: expected one of port",
      () => image.startCommand("a", { readyWhen: {} as { port: number } }),
    ],
    [
      "startCommand.readyWhen.seconds: expected a number",
      () => image.startCommand("a", { readyWhen: { seconds: -1 } }),
    ],
    ["startCommand options.ready: there is no such field", () => image.startCommand("a", { ready: 1 } as object)],
    ["builder.memoryMb: expected a whole number of MiB", () => image.builder({ memoryMb: 1 })],
    ["builder.memoryMb: expected a whole number of MiB", () => image.builderMemory(0.5)],
    ["builderMemory memoryMb: expected a number", () => image.builderMemory(anyText(undefined) as unknown as number)],
    ["builder.runtimeMemoryMb: expected", () => image.runtimeMemory(-1)],
  ])("%s", (message, act) => {
    expect(act).toThrow(message);
  });
});

test("nobody can change an image by what it shows of itself", async () => {
  const image = Image.base()
    .aptInstall(["cmake"])
    .addFile("/a", new Uint8Array([1, 2]))
    .builder({ memoryMb: 512 });
  const before = await image.resolve();
  const [apt, file] = image.steps as unknown as [{ packages: string[] }, { content: Uint8Array }];
  expect(() => apt.packages.push("x")).toThrow(TypeError);
  file.content[0] = 9;
  for (const each of [image, Image.base()]) {
    expect(() => Object.assign(each.builderOptions, { memoryMb: 1 })).toThrow(TypeError);
  }
  expect(canonicalJson((await image.resolve()).recipe)).toBe(canonicalJson(before.recipe));
});
