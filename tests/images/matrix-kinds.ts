/** What the images of the matrix are made of, and how to tell that all of it is there. */
import { createHash } from "node:crypto";
import type { Sandbox } from "@holdfast/engine";
import type { BlobStore } from "@holdfast/images";
import { canonicalJson, type Digest, type Recipe, type RecipeStep, type TreeEntry } from "@holdfast/recipe";
import { expect } from "vitest";
import type { LocalIndexes } from "../helpers/local-indexes.js";
import { shell } from "../helpers/use-engine.js";
import type { Kind } from "./matrix-cells.js";

export interface Materials {
  readonly indexes: LocalIndexes;
  readonly blobs: BlobStore;
  /** What the steps of `big` really hold in memory. */
  readonly heldMb: number;
  /** Found in no other cell. */
  readonly cell: string;
}

export interface KindOfImage {
  readonly steps: readonly RecipeStep[];
  readonly more?: Partial<Recipe>;
  /** Fails if something is missing. */
  check(sandbox: Sandbox): Promise<void>;
}

export const run = (command: string): RecipeStep => ({ kind: "run", command });

/** Written to, page for page: what is only asked for costs nothing. */
export const hold = (mb: number): string => `python3 -c "print(len(b'x' * (${mb} << 20)) >> 20)"`;

export async function said(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, cause, message } = await shell(sandbox, script);
  expect(cause, `${script}\n${message}\n${stderr}`).toEqual({ kind: "exited", code: 0 });
  return stdout;
}

const HOSTILE = {
  PLAIN: "1",
  QUOTES: `it's "quoted" \`id\` $(id) $HOME \\ * ;`,
  LINES: "one\n two\n",
  EMPTY: "",
};

const makers: Readonly<Record<Kind, (materials: Materials) => KindOfImage | Promise<KindOfImage>>> = {
  run: () => ({
    steps: [
      { kind: "workdir", path: "/work/sub dir" },
      run("printf '%s' \"$PWD\" > where; ln -s where link; id -un > who"),
      { kind: "exec", argv: ["sh", "-c", 'printf "%s\\n" "$@" > arguments', "sh", "a b", "$HOME", "x>=2.31"] },
    ],
    async check(sandbox) {
      expect(await said(sandbox, "pwd; cat link; echo; cat who arguments")).toBe(
        "/work/sub dir\n/work/sub dir\nroot\na b\n$HOME\nx>=2.31\n",
      );
    },
  }),
  apt: ({ indexes }) => ({
    steps: [
      { kind: "run", command: `echo '${indexes.aptSource}' > /etc/apt/sources.list`, user: "root" },
      { kind: "apt", packages: ["hf-greeter"] },
    ],
    async check(sandbox) {
      expect(await said(sandbox, "hf-greeter; dpkg-query -s hf-greeter | grep Status; ls /var/lib/apt/lists")).toBe(
        "hello from apt 1.2\nStatus: install ok installed\n",
      );
    },
  }),
  npm: ({ indexes }) => ({
    steps: [{ kind: "npm", packages: ["hf-shouter@^2.0.0"], registryUrl: indexes.npmRegistry }],
    async check(sandbox) {
      expect(await said(sandbox, "hf-shouter; ls -d /tmp/.holdfast* 2>/dev/null || echo clean")).toBe(
        "HELLO FROM NPM 2.1.0\nclean\n",
      );
    },
  }),
  pip: ({ indexes }) => ({
    // As a shell would have it, this is a file called `=2.31`, and any version at all.
    steps: [{ kind: "pip", packages: ["hf-counter>=2.31"], indexUrl: indexes.pipIndex }],
    async check(sandbox) {
      expect(
        await said(sandbox, "python3 -c 'import hf_counter; print(hf_counter.VERSION)'; ls -d '=2.31' || true"),
      ).toBe("2.31\n");
    },
  }),
  env: () => ({
    steps: [
      { kind: "env", variables: HOSTILE },
      { kind: "env", variables: { PATH: "/opt/tools:$PATH" }, expand: true },
      run('printf "%s|%s|%s" "$PLAIN" "$QUOTES" "$LINES" > /home/user/seen'),
    ],
    async check(sandbox) {
      const text = `${HOSTILE.PLAIN}|${HOSTILE.QUOTES}|${HOSTILE.LINES}`;
      expect(await said(sandbox, "cat ~/seen")).toBe(text);
      const print = 'printf "%s|%s|%s" "$PLAIN" "$QUOTES" "$LINES"';
      expect(await said(sandbox, print)).toBe(text);
      expect(await said(sandbox, `bash -lc '${print}'`)).toBe(text);
      expect(await said(sandbox, 'echo "$PATH" | cut -d: -f1; env | grep ^EMPTY=')).toBe("/opt/tools\nEMPTY=\n");
    },
  }),
  file: async ({ blobs }) => ({
    steps: [{ kind: "copy", tree: await addTree(blobs), to: "/srv/app/", owner: "user" }],
    async check(sandbox) {
      expect(
        await said(sandbox, "cd /srv/app && ./tool.sh && stat -c '%A %U %n' * && readlink link && cat 'a b'"),
      ).toBe("a tool\n-rw-r----- user a b\nlrwxrwxrwx user link\n-rwxr-x--x user tool.sh\ntool.sh\ncontent of a b");
    },
  }),
  multi: ({ cell }) => ({
    more: {
      stages: [
        {
          base: { kind: "base" },
          steps: [
            { kind: "label", labels: { cell } },
            run(
              "mkdir -p /home/user/out/deep && seq 1 10000 > /home/user/out/deep/numbers && chmod 640 /home/user/out/deep/numbers",
            ),
          ],
        },
      ],
      start: { command: "exec python3 -m http.server 8000", readyWhen: { kind: "port", port: 8000 } },
    },
    steps: [
      { kind: "workdir", path: "/app" },
      {
        kind: "copy-from",
        source: { kind: "stage", index: 0 },
        paths: ["/home/user/out"],
        to: "/app/out",
        owner: "user",
      },
      { kind: "env", variables: { STAGE: "last" } },
      run('echo "$STAGE" > stage'),
      run("rm stage && echo again > stage && mkdir layers && touch layers/one"),
      run("rm -r layers && mkdir layers && touch layers/two"),
    ],
    async check(sandbox) {
      expect(
        await said(sandbox, "sha256sum < out/deep/numbers; seq 1 10000 | sha256sum; stat -c %a out/deep/numbers"),
      ).toMatch(/^(\w{64} {2}-\n)\1(?:640\n)$/);
      expect(await said(sandbox, "cat stage; ls layers; ls ~/out 2>/dev/null || echo only here")).toBe(
        "again\ntwo\nonly here\n",
      );
    },
  }),
  big: ({ heldMb }) => ({
    steps: [
      run(`${hold(heldMb)} > /home/user/held`),
      run("head -c 48M /dev/urandom > /home/user/large && sha256sum < /home/user/large > /home/user/large.sum"),
    ],
    async check(sandbox) {
      expect(await said(sandbox, "cat ~/held; sha256sum < ~/large | cmp - ~/large.sum && stat -c %s ~/large")).toBe(
        `${heldMb}\n${48 * 1024 * 1024}\n`,
      );
    },
  }),
};

export async function makeKind(kind: Kind, materials: Materials): Promise<KindOfImage> {
  return makers[kind](materials);
}

async function addTree(blobs: BlobStore): Promise<Digest> {
  const add = (text: string) => blobs.add(chunks(text));
  const file = async (path: string, mode: number, text: string): Promise<TreeEntry> => {
    const { digest, sizeBytes } = await add(text);
    return { path, type: "file", mode, digest, sizeBytes };
  };
  const entries = [
    await file("a b", 0o640, "content of a b"),
    { path: "link", type: "symlink", mode: 0o777, target: "tool.sh" } as const,
    await file("tool.sh", 0o751, "#!/bin/sh\necho a tool\n"),
  ];
  const text = canonicalJson({ version: 1, entries });
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}` as const;
  await blobs.put(digest, chunks(text));
  return digest;
}

async function* chunks(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
