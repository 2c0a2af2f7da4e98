// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the dollar signs are what is tested.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { DockerfileOptions } from "../draft.js";
import { Image } from "../image.js";
import type { Recipe, RecipeStep } from "../recipe.js";
import type { TreeEntry } from "../tree.js";

let top: string;
const files: Record<string, string | Uint8Array> = {
  "app.py": "print()",
  "package.json": "{}",
  "package-lock.json": "{}",
  "src/main.ts": "main",
  "src/lib/a.ts": "a",
  "src/lib/ignored.log": "",
  "docs/main.ts": "docs",
  "a b/c d": "spaces",
  "arr[0].txt": "",
  "secret.env": "",
  "x.tar.gz": gzipSync("x"),
  "plain.bin": "plain",
  ".dockerignore": "**/*.log\nsecret.env\n",
};

beforeAll(() => {
  top = mkdtempSync(join(tmpdir(), "holdfast-dockerfile-"));
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(top, path)), { recursive: true });
    writeFileSync(join(top, path), content);
  }
  mkdirSync(join(top, "empty"));
  symlinkSync("src", join(top, "link"));
  symlinkSync("/etc", join(top, "outside"));
  symlinkSync("nowhere", join(top, "dangling"));
});

afterAll(() => {
  rmSync(top, { recursive: true, force: true });
});

interface Converted {
  readonly recipe: Recipe;
  readonly trees: ReadonlyMap<string, readonly string[]>;
}

async function convert(text: string, options: DockerfileOptions = {}): Promise<Converted> {
  const file = join(top, "Dockerfile");
  writeFileSync(file, text);
  const { recipe, blobs } = await Image.fromDockerfile(file, options).resolve();
  const trees = new Map<string, string[]>();
  for (const step of recipe.steps) {
    if (step.kind !== "copy") continue;
    const blob = blobs.find(({ digest }) => digest === step.tree);
    const { entries } = (await new Response(blob?.open()).json()) as { entries: TreeEntry[] };
    trees.set(
      step.tree,
      entries.map(({ path, type }) => (type === "directory" ? `${path}/` : path)),
    );
  }
  return { recipe, trees };
}

async function stepsOf(text: string, options?: DockerfileOptions): Promise<readonly RecipeStep[]> {
  return (await convert(`FROM debian:12\n${text}`, options)).recipe.steps;
}

const ARCHITECTURE = process.arch === "x64" ? "amd64" : process.arch;

describe("instructions", () => {
  test.each<[string, string, RecipeStep[]]>([
    ["RUN in a shell", "RUN echo \"$X\" && a > b | 'c d'", [{ kind: "run", command: "echo \"$X\" && a > b | 'c d'" }]],
    ["RUN of a program", 'run ["a", "$X", "b c"]', [{ kind: "exec", argv: ["a", "$X", "b c"] }]],
    ["RUN of what only looks like a list", "RUN [ -e /x ] && y", [{ kind: "run", command: "[ -e /x ] && y" }]],
    [
      "lines that go on, with comments between",
      "RUN a && \\\n  # not this\n\n  b \\  \n&& c",
      [{ kind: "run", command: "a &&   b && c" }],
    ],
    [
      "two backslashes at the end of a line",
      "RUN echo \\\\\nRUN b",
      [
        { kind: "run", command: "echo \\\\" },
        { kind: "run", command: "b" },
      ],
    ],
    ["a hash inside of a line", "RUN echo '#' # x", [{ kind: "run", command: "echo '#' # x" }]],
    [
      "Windows line ends",
      "RUN a \\\r\n  b\r\nUSER x\r\n",
      [
        { kind: "run", command: "a   b" },
        { kind: "user", name: "x" },
      ],
    ],
    [
      "a heredoc that is the script",
      "RUN <<EOF\nset -e\necho $X \\\n  # kept\nEOF\nUSER x",
      [
        { kind: "run", command: "set -e\necho $X \\\n  # kept\n" },
        { kind: "user", name: "x" },
      ],
    ],
    ["a heredoc without its tabs", "RUN <<-'END'\n\ta\n\t\tb\n\tEND", [{ kind: "run", command: "a\nb\n" }]],
    [
      "a command with heredocs",
      "RUN cat <<A <<'B' > /x\n1\nA\n2\nB",
      [{ kind: "run", command: "cat <<A <<'B' > /x\n1\nA\n2\nB" }],
    ],
    ["a here-string is no heredoc", "RUN cat <<<x", [{ kind: "run", command: "cat <<<x" }]],
    [
      "ENV in both forms",
      'ENV A=1 B="2 3" C=\'$A\' D=a\\ b\nENV E one  two "three"\nENV F=$A-${B}',
      [
        { kind: "env", variables: { A: "1", B: "2 3", C: "$A", D: "a b" } },
        { kind: "env", variables: { E: "one  two three" } },
        { kind: "env", variables: { F: "1-2 3" } },
      ],
    ],
    [
      "ENV sees what was set before its line",
      "ENV A=1\nENV A=2 B=$A",
      [
        { kind: "env", variables: { A: "1" } },
        { kind: "env", variables: { A: "2", B: "1" } },
      ],
    ],
    [
      "ENV with what only the base has",
      "ENV PATH=/opt/bin:$PATH PRICE='$5'\nENV P2=$PATH:x Q=${NOT:-none}",
      [
        { kind: "env", variables: { PATH: "/opt/bin:${PATH}", PRICE: "\\$5" }, expand: true },
        { kind: "env", variables: { P2: "${PATH}:x", Q: "${NOT:-none}" }, expand: true },
      ],
    ],
    [
      "WORKDIR goes on from the one before",
      "WORKDIR rel\nWORKDIR /a\nWORKDIR b/../c\nWORKDIR ..\nENV D=/d\nWORKDIR $D/x y",
      [
        { kind: "workdir", path: "rel" },
        { kind: "workdir", path: "/a" },
        { kind: "workdir", path: "/a/c" },
        { kind: "workdir", path: "/a" },
        { kind: "env", variables: { D: "/d" } },
        { kind: "workdir", path: "/d/x y" },
      ],
    ],
    ["USER", "ARG U=app\nUSER $U:1000", [{ kind: "user", name: "app:1000" }]],
    [
      "ARG is seen by RUN, unless an ENV has its name",
      'ARG A=1\nARG B\nARG C=$A-2 D="x y"\nRUN a\nENV A=9\nRUN ["b"]',
      [
        { kind: "run", command: "a", env: { A: "1", C: "1-2", D: "x y" } },
        { kind: "env", variables: { A: "9" } },
        { kind: "exec", argv: ["b"], env: { C: "1-2", D: "x y" } },
      ],
    ],
    [
      "ARG of the platform",
      "ARG TARGETARCH\nRUN a",
      [{ kind: "run", command: "a", env: { TARGETARCH: ARCHITECTURE } }],
    ],
    [
      "CMD and ENTRYPOINT",
      'ENTRYPOINT ["/init", "$X"]\nCMD exec  node "a b"',
      [
        { kind: "entrypoint", argv: ["/init", "$X"] },
        { kind: "cmd", argv: ["/bin/sh", "-c", 'exec  node "a b"'] },
      ],
    ],
    [
      "an ENTRYPOINT alone does away with the base's CMD",
      "ENTRYPOINT x\nUSER a",
      [
        { kind: "entrypoint", argv: ["/bin/sh", "-c", "x"] },
        { kind: "cmd", argv: [] },
        { kind: "user", name: "a" },
      ],
    ],
    [
      "EXPOSE",
      "ARG P=80\nEXPOSE $P 53/udp 8000-8002",
      [{ kind: "expose", ports: ["80/tcp", "53/udp", "8000/tcp", "8001/tcp", "8002/tcp"] }],
    ],
    [
      "LABEL",
      'LABEL a=1 "b c"="d\\"e" \\\n  f=\'g h\'\nLABEL old style',
      [
        { kind: "label", labels: { a: "1", "b c": 'd"e', f: "g h" } },
        { kind: "label", labels: { old: "style" } },
      ],
    ],
  ])("%s", async (_, text, steps) => {
    expect(await stepsOf(text)).toEqual(steps);
  });

  test("another escape character is a directive of the first lines", async () => {
    const { recipe } = await convert(
      "# syntax=docker/dockerfile:1\n# escape=`\nFROM x\nRUN a `\n b\nENV A=`$B C=\\d\n",
    );
    expect(recipe.steps).toEqual([
      { kind: "run", command: "a  b" },
      { kind: "env", variables: { A: "$B", C: "\\d" } },
    ]);
    expect(await stepsOf("# escape=`\nRUN a \\\n b")).toEqual([{ kind: "run", command: "a  b" }]);
  });

  test("args are given from outside", async () => {
    const text = "ARG TAG=12\nFROM debian:$TAG\nARG TAG\nARG A=1\nARG B\nRUN x";
    const { recipe } = await convert(text, { args: { TAG: "13", A: "a b", B: "" } });
    expect(recipe.base).toEqual({ kind: "image", name: "debian:13" });
    expect(recipe.steps).toEqual([{ kind: "run", command: "x", env: { TAG: "13", A: "a b", B: "" } }]);
    const { recipe: plain } = await convert(text);
    expect(plain.base).toEqual({ kind: "image", name: "debian:12" });
    expect(plain.steps).toEqual([{ kind: "run", command: "x", env: { TAG: "12", A: "1" } }]);
    await expect(convert(text, { args: { TAGS: "1" } })).rejects.toThrow(
      "args.TAGS: the Dockerfile has no ARG of this name",
    );
  });
});

describe("COPY and ADD", () => {
  const copy = async (text: string): Promise<object[]> => {
    const { recipe, trees } = await convert(`FROM x\n${text}`);
    return recipe.steps.flatMap((step) => (step.kind === "copy" ? [{ ...step, tree: trees.get(step.tree) }] : []));
  };

  test.each<[string, string, object]>([
    ["a file to a path", "COPY app.py /srv/main.py", { tree: [""], to: "/srv/main.py", name: "app.py" }],
    ["a file into a directory", "COPY app.py /srv/", { tree: ["app.py"], to: "/srv/" }],
    ["a file into the work directory", "WORKDIR /w\nCOPY app.py .", { tree: ["app.py"], to: "/w/" }],
    ["a file into a work directory that only the base knows", "COPY app.py ./", { tree: ["app.py"], to: "./" }],
    ["a relative target", "WORKDIR /w/v\nCOPY ./app.py ../x", { tree: [""], to: "/w/x", name: "app.py" }],
    ["the content of a directory", "COPY src /app", { tree: ["lib/", "lib/a.ts", "main.ts"], to: "/app" }],
    ["the content of a directory in a directory", "COPY /src/lib/ /app/", { tree: ["a.ts"], to: "/app/" }],
    ["an empty directory", "COPY empty /e", { tree: [], to: "/e" }],
    [
      "several sources",
      "COPY package.json ./src/lib app.py ./",
      { tree: ["a.ts", "app.py", "package.json"], to: "./" },
    ],
    ["a wildcard", "COPY package*.json /a/", { tree: ["package-lock.json", "package.json"], to: "/a/" }],
    ["a wildcard with one match", "COPY app.* /a/app", { tree: [""], to: "/a/app", name: "app.py" }],
    ["a wildcard over directories", "COPY */main.t? /a/", { tree: ["main.ts"], to: "/a/" }],
    ["a character that would be a wildcard", "COPY arr[[]0].txt /a/", { tree: ["arr[0].txt"], to: "/a/" }],
    ["names with spaces", 'COPY ["a b/c d", "/x y/"]', { tree: ["c d"], to: "/x y/" }],
    ["through a link", "COPY link/main.ts link /a/", { tree: ["lib/", "lib/a.ts", "main.ts"], to: "/a/" }],
    ["owner and mode", "ARG U=app\nCOPY --chown=$U:staff --chmod=0755 app.py /a/", { owner: "app:staff", mode: 0o755 }],
    ["root's by default", "COPY --chown=root app.py /a/", { kind: "copy", tree: ["app.py"], to: "/a/" }],
    ["variables", "ENV D=/d S=app\nCOPY ${S}.py $D/", { tree: ["app.py"], to: "/d/" }],
    ["ADD of a file", "ADD plain.bin /a", { tree: [""], to: "/a", name: "plain.bin" }],
    ["COPY of an archive", "COPY x.tar.gz /a", { tree: [""], to: "/a" }],
  ])("%s", async (_, text, expected) => {
    expect(await copy(text)).toMatchObject([expected]);
  });

  test("everything but what is ignored", async () => {
    const [all] = (await copy("COPY . /app")) as { tree: string[] }[];
    expect(all?.tree).toEqual(
      expect.arrayContaining(["app.py", "empty/", "link", "outside", "src/lib/a.ts", ".dockerignore"]),
    );
    expect(all?.tree.filter((path) => path.endsWith(".log") || path === "secret.env")).toEqual([]);
  });

  test("another context and its own ignore file", async () => {
    writeFileSync(join(top, "Dockerfile.dockerignore"), "lib\n");
    const { trees } = await convert("FROM x\nCOPY . /a", { context: join(top, "src") });
    rmSync(join(top, "Dockerfile.dockerignore"));
    expect([...trees.values()]).toEqual([["main.ts"]]);
  });
});

describe("stages", () => {
  const dockerfile = `
ARG BASE=node:20
FROM --platform=linux/${ARCHITECTURE} $BASE AS Deps
ENV A=1
ARG V=7
WORKDIR /deps
RUN install

FROM golang AS unused
COPY nothing /there

FROM deps AS build
RUN make $A
COPY --from=busybox:1 /bin/* tools/
FROM debian:12
COPY --from=build --chown=app /out/*.js /app/
COPY --from=0 /deps .
CMD ["x"]
`;

  test("become those of the recipe, without those that nothing needs", async () => {
    const { recipe } = await convert(dockerfile);
    expect(recipe).toEqual({
      version: 1,
      base: { kind: "image", name: "debian:12" },
      steps: [
        { kind: "copy-from", source: { kind: "stage", index: 1 }, paths: ["/out/*.js"], to: "/app/", owner: "app" },
        { kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/deps"], to: "./", owner: "keep" },
        { kind: "cmd", argv: ["x"] },
      ],
      stages: [
        {
          base: { kind: "image", name: "node:20" },
          steps: [
            { kind: "env", variables: { A: "1" } },
            { kind: "workdir", path: "/deps" },
            { kind: "run", command: "install", env: { V: "7" } },
          ],
        },
        {
          base: { kind: "stage", index: 0 },
          steps: [
            { kind: "run", command: "make $A", env: { V: "7" } },
            {
              kind: "copy-from",
              source: { kind: "image", name: "busybox:1" },
              paths: ["/bin/*"],
              to: "/deps/tools/",
              owner: "keep",
            },
          ],
        },
      ],
      start: null,
    });
  });

  test("can be the target, by name or number", async () => {
    const { recipe } = await convert(dockerfile, { target: "DEPS" });
    expect(recipe.stages).toEqual([]);
    expect(recipe.base).toEqual({ kind: "image", name: "node:20" });
    expect((await convert(dockerfile, { target: "2" })).recipe.stages).toHaveLength(1);
    await expect(convert(dockerfile, { target: "x" })).rejects.toThrow('has no stage "x"');
    await expect(convert(dockerfile, { target: "9" })).rejects.toThrow('has no stage "9"');
  });

  test("go on in an image that is declared further", async () => {
    writeFileSync(join(top, "Dockerfile"), dockerfile);
    const tools = Image.fromDockerfile(join(top, "Dockerfile"), { target: "build" });
    const image = Image.fromDockerfile(join(top, "Dockerfile")).runCommands("more").copyFrom(tools, "/t", "/t");
    const { recipe } = await image.resolve();
    expect(recipe.steps.slice(-2)).toEqual([
      { kind: "run", command: "more" },
      { kind: "copy-from", source: { kind: "stage", index: 3 }, paths: ["/t"], to: "/t", owner: "keep" },
    ]);
    expect(recipe.stages.map(({ base }) => base)).toEqual([
      { kind: "image", name: "node:20" },
      { kind: "stage", index: 0 },
      { kind: "image", name: "node:20" },
      { kind: "stage", index: 2 },
    ]);
  });

  test("FROM base is ours", async () => {
    expect((await convert("FROM base")).recipe.base).toEqual({ kind: "base" });
  });
});

describe("refuses, by name and line,", () => {
  test.each<[string, string]>([
    ["Dockerfile:1: there is no instruction", "# nothing\n\n"],
    ["Dockerfile:2: there is no FROM", "\nARG A=1"],
    ["Dockerfile:1: RUN stands before the first FROM", "RUN a\nFROM x"],
    ["Dockerfile:4: HEALTHCHECK is not supported", "FROM x\nRUN a \\\n b\nHEALTHCHECK CMD x"],
    ["Dockerfile:2: VOLUME is not supported", "FROM x\nVOLUME /a"],
    ["Dockerfile:2: ONBUILD is not supported", "FROM x\nONBUILD RUN a"],
    ["Dockerfile:2: STOPSIGNAL is not supported", "FROM x\nSTOPSIGNAL TERM"],
    ["Dockerfile:2: MAINTAINER is not supported", "FROM x\nmaintainer me"],
    ["Dockerfile:2: SHELL is not supported", 'FROM x\nSHELL ["a"]'],
    ["Dockerfile:2: FRM is not supported", "FROM x\nFRM y"],
    ['Dockerfile:2: "b&&" is not an instruction', "FROM x\nb&& c"],
    ["Dockerfile:1: the escape directive must be", "# escape=/\nFROM x"],
    ["Dockerfile:1: FROM scratch is not supported", "FROM scratch"],
    ["Dockerfile:1: FROM a b c d: expected an image", "FROM a b c d"],
    ["Dockerfile:1: FROM : expected an image", `FROM --platform=linux/${ARCHITECTURE}`],
    ["Dockerfile:1: FROM ../x: image.name: expected the name", "FROM ../x"],
    ["Dockerfile:1: FROM … AS 9x: a stage's name", "FROM x AS 9x"],
    ["Dockerfile:1: FROM --platform=linux/s390x: this host is linux/", "FROM --platform=linux/s390x x"],
    ["Dockerfile:1: FROM --x is not supported", "FROM --x=1 x"],
    ["Dockerfile:2: RUN needs an argument", "FROM x\nRUN"],
    ["Dockerfile:2: RUN --mount is not supported", "FROM x\nRUN --mount=type=cache,target=/x a"],
    ["Dockerfile:2: RUN --network is not supported", "FROM x\nRUN --network=none a"],
    ["Dockerfile:2: RUN: the list may hold nothing but texts", "FROM x\nRUN [1]"],
    ["Dockerfile:2: RUN: argv: expected at least one item", "FROM x\nRUN []"],
    ["Dockerfile:2: RUN: the heredoc EOF has no end", "FROM x\nRUN <<EOF\na"],
    [
      "Dockerfile:2: RUN with a heredoc that begins with #! is not supported",
      "FROM x\nRUN <<EOF\n#!/usr/bin/python3\nEOF",
    ],
    ["Dockerfile:2: COPY with a heredoc is not supported", "FROM x\nCOPY <<EOF /a\nb\nEOF"],
    ["Dockerfile:2: COPY --link is not supported", "FROM x\nCOPY --link app.py /a"],
    ["Dockerfile:2: COPY --parents is not supported", "FROM x\nCOPY --parents=true app.py /a"],
    ["Dockerfile:2: ADD --from is not supported", "FROM x\nADD --from=y /a /a"],
    ["Dockerfile:2: COPY needs at least one source and a target", "FROM x\nCOPY app.py"],
    ["Dockerfile:2: COPY: the list may hold", 'FROM x\nCOPY ["a", 1]'],
    ["several sources need a target that ends with a slash", "FROM x\nCOPY app.py package.json /a"],
    ["Dockerfile:2: COPY: package*.json matches 2 sources", "FROM x\nCOPY package*.json /a"],
    ["Dockerfile:2: COPY: nothing is not in the context", "FROM x\nCOPY nothing /a"],
    ["Dockerfile:2: COPY: *.nothing is not in the context", "FROM x\nCOPY *.nothing /a/"],
    ["Dockerfile:2: COPY: secret.env is not in the context", "FROM x\nCOPY secret.env /a"],
    ["Dockerfile:2: COPY: ../x lies outside of the context", "FROM x\nCOPY ../x /a"],
    ["Dockerfile:2: COPY: outside/passwd is a link that leads out of the context", "FROM x\nCOPY outside/passwd /a"],
    ["/dangling: there is no such file or directory", "FROM x\nCOPY dangl* /a/"],
    ["Dockerfile:2: COPY: main.ts is a directory in one source", "FROM x\nCOPY conflict src /a/"],
    ["Dockerfile:2: COPY: to: expected a path that does not lead out", "FROM x\nCOPY app.py ../a"],
    ["Dockerfile:2: COPY --chmod=u+x: expected an octal mode", "FROM x\nCOPY --chmod=u+x app.py /a"],
    ["Dockerfile:2: COPY: owner: expected a user", "FROM x\nCOPY --chown=a,b app.py /a"],
    ["Dockerfile:2: COPY --from=1: there is no such stage", "FROM x\nCOPY --from=1 /a /a"],
    ["Dockerfile:2: COPY --from needs the name", "FROM x\nCOPY --from=$X /a /a"],
    ["Dockerfile:2: ADD of a URL is not supported: https://x/y", "FROM x\nADD https://x/y /a"],
    ["Dockerfile:2: ADD of a URL is not supported: git@", "FROM x\nADD git@github.com:a/b.git /a"],
    ["Dockerfile:2: ADD: x.tar.gz is an archive", "FROM x\nADD x.tar.gz /a"],
    ["Dockerfile:2: ENV A: a value is missing", "FROM x\nENV A"],
    ["Dockerfile:2: ENV: expected name=value, got B", "FROM x\nENV A=1 B"],
    ["Dockerfile:2: ENV: variables: name: expected", "FROM x\nENV 1A=1"],
    ["Dockerfile:2: ENV A: a double quote is not closed", 'FROM x\nENV A="1'],
    ["Dockerfile:2: ENV A: ${B#x…} is not supported", "FROM x\nENV A=${B#x}"],
    ["Dockerfile:3: WORKDIR $HOME/x: HOME is set by no ENV or ARG before this line", "FROM x\nRUN a\nWORKDIR $HOME/x"],
    ["Dockerfile:2: WORKDIR: path: expected a path that does not lead out", "FROM x\nWORKDIR ../a"],
    ["Dockerfile:2: USER: name: expected a user", "FROM x\nUSER a b"],
    ["Dockerfile:2: ARG 1=2: expected a name", "FROM x\nARG 1=2"],
    ["Dockerfile:2: EXPOSE: ports[0]: expected a port", "FROM x\nEXPOSE http"],
    ["Dockerfile:2: EXPOSE 9-1: expected a range", "FROM x\nEXPOSE 9-1"],
    ["Dockerfile:2: CMD: the list may hold nothing but texts", "FROM x\nCMD [true]"],
  ])("%s", async (message, text) => {
    mkdirSync(join(top, "conflict/main.ts"), { recursive: true });
    const refusal = convert(text);
    await expect(refusal).rejects.toThrow(message);
    await expect(refusal).rejects.toMatchObject({ code: "invalid_argument" });
    rmSync(join(top, "conflict"), { recursive: true });
  });

  test("a Dockerfile or a context that is not there", async () => {
    await expect(Image.fromDockerfile(join(top, "none")).resolve()).rejects.toThrow("none: there is no such file");
    await expect(convert("FROM x", { context: join(top, "none") })).rejects.toThrow("none: there is no such file");
  });
});

test("the context is read only for what COPY names", async () => {
  const { recipe } = await convert("FROM x\nRUN a", { context: "/proc" });
  expect(recipe.steps).toEqual([{ kind: "run", command: "a" }]);
});
