import { accessSync, constants, statSync } from "node:fs";
import { join } from "node:path";

const SYSTEM_PATH = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/** Where a program of the host is: in the caller's PATH, then where systems keep theirs. Never a relative entry. */
export function findProgram(name: string): string | undefined {
  const directories = [...(process.env.PATH ?? "").split(":").filter((entry) => entry.startsWith("/")), ...SYSTEM_PATH];
  for (const directory of directories) {
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      if (statSync(path).isFile()) return path;
    } catch {
      // Not here.
    }
  }
  return undefined;
}
