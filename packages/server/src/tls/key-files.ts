/** Files that must be whole or not there. */
import { randomBytes } from "node:crypto";
import { open, readFile, rename, rm } from "node:fs/promises";

export async function writeAtomically(path: string, text: string, mode: number): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.new`;
  const file = await open(temporary, "wx", mode);
  try {
    // The mode is asked for again because the process's mask takes from the first.
    await file.chmod(mode);
    await file.writeFile(text);
    await file.sync();
    await file.close();
    await rename(temporary, path);
  } catch (error) {
    await file.close();
    await rm(temporary, { force: true });
    throw error;
  }
}

export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
