/** The small hostile programs of tests/fixtures, as arguments of a command. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const fixturePath = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

/** Handed over as text: no sandbox sees a directory of ours. `.sh` is for bash, `.js` for node. */
export function fixture(name: string, ...args: string[]): string[] {
  const text = readFileSync(fixturePath(name), "utf8");
  return name.endsWith(".js") ? ["node", "-e", text, "--", ...args] : ["bash", "-c", text, name, ...args];
}
