/** Which names from inside a sandbox may become names on this machine. */
import { HoldfastError, printable } from "@holdfast/protocol";

/** For a message: a name in bytes, as a person would read it. */
export function showName(name: string): string {
  return printable(Buffer.from(name, "latin1").toString("utf8"));
}

/** The parts of a path below the target; none for the target itself. An honest archive never has a name that is refused. */
export function partsOfName(name: string): string[] {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (name.startsWith("/") || parts.includes("..") || name.includes("\0")) {
    throw new HoldfastError(
      "access_denied",
      `the sandbox sent a file named ${JSON.stringify(showName(name))}, which would leave the target directory`,
      { hint: "Nothing was written there. Do not trust what this sandbox says.", details: { name: showName(name) } },
    );
  }
  return parts;
}

/**
 * True if a link in a directory so many levels below the target cannot lead out of it. Going up is only allowed at the
 * beginning, where the link's own real directory is what one goes up from: after another name, which may itself be a
 * link, `..` could be anywhere.
 */
export function staysInside(linkTarget: string, depth: number): boolean {
  if (linkTarget === "" || linkTarget.startsWith("/") || linkTarget.includes("\0")) return false;
  const parts = linkTarget.split("/").filter((part) => part !== "" && part !== ".");
  const firstName = parts.findIndex((part) => part !== "..");
  const ups = firstName === -1 ? parts.length : firstName;
  return ups <= depth && !parts.slice(ups).includes("..");
}
