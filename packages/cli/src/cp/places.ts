/** The two sides of a copy, as typed. */
import { basename } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

export type Place =
  | { readonly kind: "host"; readonly path: string }
  | { readonly kind: "sandbox"; readonly sandbox: string; readonly path: string }
  /** Our stdin or stdout. */
  | { readonly kind: "stream" };

export type HostSide = Extract<Place, { kind: "host" | "stream" }>;
export type SandboxSide = Extract<Place, { kind: "sandbox" }>;

export type CopyPlan =
  | { readonly direction: "in"; readonly from: HostSide; readonly to: SandboxSide }
  | { readonly direction: "out"; readonly from: SandboxSide; readonly to: HostSide };

/** Before the first colon, if that is what an id is made of. `./a:b` and `/a:b` are files of this machine. */
const SANDBOX_PATH = /^([a-z0-9]{1,32}):(.*)$/s;

export function parsePlace(text: string, field: string): Place {
  if (text === "-") return { kind: "stream" };
  const [, sandbox, path] = SANDBOX_PATH.exec(text) ?? [];
  if (text === "" || text.includes("\0")) throw invalidArgument(field, text, "a path, SANDBOX:PATH or -");
  if (sandbox === undefined || path === undefined) return { kind: "host", path: text };
  // As with scp(1), nothing is the home directory, where relative paths begin.
  return { kind: "sandbox", sandbox, path: path === "" ? "." : path };
}

export function planCopy(source: string, destination: string): CopyPlan {
  const from = parsePlace(source, "SRC");
  const to = parsePlace(destination, "DST");
  if (from.kind === "sandbox" && to.kind !== "sandbox") return { direction: "out", from, to };
  if (from.kind !== "sandbox" && to.kind === "sandbox") return { direction: "in", from, to };
  const both = from.kind === "sandbox";
  throw new HoldfastError("invalid_argument", `${both ? "both sides are" : "neither side is"} in a sandbox`, {
    hint: both
      ? "Copy to this machine first, or through a pipe: holdfast cp A:file - | holdfast cp - B:file."
      : "Write one of them as SANDBOX:PATH; `holdfast ps` lists the sandboxes.",
    details: { field: "SRC" },
  });
}

/** From what was typed, never from what a sandbox says. Empty for `.`, `..` and `/`: those mean what is in them, as with cp(1). */
function nameOfSource(source: HostSide | SandboxSide): string {
  const name = source.kind === "stream" ? "" : basename(source.path);
  return name === "." || name === ".." ? "" : name;
}

/** As cp(1) has it: into a directory that is there, else to that very name. */
export function destinationOf(
  source: HostSide | SandboxSide,
  destination: string,
  facts: { readonly sourceIsDirectory: boolean; readonly destinationIsDirectory: boolean },
): string {
  const intoDirectory = facts.destinationIsDirectory || (destination.endsWith("/") && !facts.sourceIsDirectory);
  if (!intoDirectory) return destination;
  const name = nameOfSource(source);
  if (name !== "") return destination.endsWith("/") ? destination + name : `${destination}/${name}`;
  if (facts.sourceIsDirectory) return destination;
  throw invalidArgument("DST", destination, "the name of a file, because what comes from stdin has none");
}
