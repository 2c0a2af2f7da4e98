// Random trees of files for the property tests of holdfast-tar, and what there is to see of a tree. Names are bytes, as
// the kernel has them.
import {
  chmodSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import fc from "fast-check";

interface Metadata {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeSeconds: number;
}

export type Node =
  | (Metadata & { readonly kind: "file"; readonly name: Buffer; readonly content: Uint8Array })
  | (Metadata & { readonly kind: "directory"; readonly name: Buffer; readonly children: readonly Node[] })
  | (Metadata & { readonly kind: "symlink"; readonly name: Buffer; readonly target: Buffer })
  /** Another name of the n-th file so far, counted round; a new empty file if there is none. */
  | (Metadata & { readonly kind: "hardlink"; readonly name: Buffer; readonly which: number });

const SLASH = Buffer.from("/");
const SOME_NAMES = ["a", "b", "a-b", "a b", "new\nline", "-dash", ".wh", "ünï", "日本", "\u{1f980}", "'\"$`\\", "*"];

const bytesOfName = fc
  .uint8Array({ minLength: 1, maxLength: 255 })
  .map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0 || byte === 0x2f ? 0x78 : byte))))
  .filter((name) => name.toString("latin1") !== "." && name.toString("latin1") !== "..");

const name = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...SOME_NAMES).map((text) => Buffer.from(text)) },
  { weight: 1, arbitrary: fc.integer({ min: 90, max: 255 }).map((length) => Buffer.alloc(length, "long")) },
  { weight: 1, arbitrary: bytesOfName },
);

const metadata = {
  mode: fc.oneof(fc.constantFrom(0o644, 0o755, 0o700, 0o4755, 0o2755, 0o1777), fc.integer({ min: 0, max: 0o7777 })),
  uid: fc.constantFrom(0, 1000, 65_534, 2_097_151, 2_097_152, 4_294_967_294),
  gid: fc.constantFrom(0, 1000, 2_097_152),
  mtimeSeconds: fc.oneof(fc.integer({ min: 0, max: 4_000_000_000 }), fc.integer({ min: -1000, max: 1000 })),
};

const content = fc.oneof(
  fc.uint8Array({ maxLength: 2000 }),
  fc.constantFrom(0, 511, 512, 513, 300_000).map((length) => new Uint8Array(length).fill(0x61)),
);

const target = fc.oneof(
  name,
  fc
    .constantFrom("/", "..", "../../..", "/etc/passwd", "a/b", "t".repeat(101), "t/".repeat(2000))
    .map((text) => Buffer.from(text)),
);

function uniqueByName(nodes: readonly Node[]): Node[] {
  return [...new Map(nodes.map((node) => [node.name.toString("latin1"), node])).values()];
}

const { nodes } = fc.letrec<{ node: Node; nodes: Node[] }>((tie) => ({
  nodes: fc.array(tie("node"), { maxLength: 6 }).map(uniqueByName),
  node: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.record({ ...metadata, kind: fc.constant("file" as const), name, content }),
    fc.record({ ...metadata, kind: fc.constant("symlink" as const), name, target }),
    fc.record({ ...metadata, kind: fc.constant("hardlink" as const), name, which: fc.nat() }),
    fc.record({ ...metadata, kind: fc.constant("directory" as const), name, children: tie("nodes") }),
  ),
}));

export const arbitraryTree: fc.Arbitrary<readonly Node[]> = nodes;

function below(directory: Buffer, child: Buffer): Buffer {
  return Buffer.concat([directory, SLASH, child]);
}

function finish(path: Buffer, node: Node): void {
  lchownSync(path, node.uid, node.gid);
  if (node.kind !== "symlink") chmodSync(path, node.mode);
  lutimesSync(path, 0, node.mtimeSeconds);
}

export function makeTree(directory: Buffer, tree: readonly Node[], files: Buffer[] = []): void {
  for (const node of tree) {
    const path = below(directory, node.name);
    if (node.kind === "symlink") symlinkSync(node.target, path);
    if (node.kind === "directory") {
      mkdirSync(path);
      makeTree(path, node.children, files);
    }
    const original = node.kind === "hardlink" ? files[node.which % Math.max(files.length, 1)] : undefined;
    if (original !== undefined) {
      linkSync(original, path);
      continue;
    }
    if (node.kind === "file" || node.kind === "hardlink") {
      writeFileSync(path, node.kind === "file" ? node.content : "");
      files.push(path);
    }
    finish(path, node);
  }
}

/** One line for everything below `directory`, with all that an archive keeps; hard links are told by the first name. */
export function describeTree(directory: Buffer, inodes = new Map<number, string>(), prefix = ""): string[] {
  const names = readdirSync(directory, { encoding: "buffer" }).sort(Buffer.compare);
  return names.flatMap((child) => {
    const path = below(directory, child);
    const shown = prefix + JSON.stringify(child.toString("latin1"));
    const stat = lstatSync(path);
    const first = stat.isDirectory() ? shown : (inodes.get(stat.ino) ?? shown);
    inodes.set(stat.ino, first);
    const facts = [
      shown,
      stat.mode.toString(8),
      `${stat.uid}:${stat.gid}`,
      Math.floor(stat.mtimeMs / 1000),
      stat.isFile() ? readFileSync(path).toString("base64") : "",
      stat.isSymbolicLink() ? readlinkSync(path, { encoding: "buffer" }).toString("latin1") : "",
      first,
    ];
    const inner = stat.isDirectory() ? describeTree(path, inodes, `${shown}/`) : [];
    return [facts.join(" "), ...inner];
  });
}
