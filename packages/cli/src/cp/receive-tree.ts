/** An archive from inside a sandbox, unpacked into a directory of this machine. */
import { partsOfName, showName, staysInside } from "./safe-names.js";
import { readTar, type TarEntry } from "./tar-reader.js";
import { TargetTree } from "./target-tree.js";

export interface Received {
  readonly files: number;
  readonly bytes: number;
  /** What was left out, and why. */
  readonly skipped: number;
}

export async function receiveTree(
  archive: AsyncIterable<Uint8Array>,
  targetDirectory: string,
  onSkip: (name: string, why: string) => void,
): Promise<Received> {
  const tree = await TargetTree.open(targetDirectory);
  const received = { files: 0, bytes: 0, skipped: 0 };
  try {
    await readTar(archive, async (entry, content) => {
      const why = await place(tree, entry, content);
      if (why !== undefined) {
        received.skipped += 1;
        onSkip(showName(entry.name), why);
      } else if (entry.type === "file") {
        received.files += 1;
        received.bytes += entry.sizeBytes;
      }
    });
  } finally {
    await tree.close();
  }
  return received;
}

/** Why it was not placed; undefined if it was. */
async function place(
  tree: TargetTree,
  entry: TarEntry,
  content: AsyncIterable<Uint8Array>,
): Promise<string | undefined> {
  switch (entry.type) {
    case "directory":
      await tree.makeDirectory(entry.name, entry.mode);
      return undefined;
    case "file":
      await tree.writeFile(entry.name, entry, content);
      return undefined;
    case "hardlink":
      await tree.copyFile(entry.name, entry.linkName);
      return undefined;
    case "symlink": {
      const depth = partsOfName(entry.name).length - 1;
      if (!staysInside(entry.linkName, depth)) return `it is a link to ${showName(entry.linkName)}, outside the copy`;
      await tree.makeSymlink(entry.name, entry.linkName);
      return undefined;
    }
    case "other":
      return "it is neither a file, a directory nor a link";
  }
}
