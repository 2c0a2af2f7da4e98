/** A sandbox by the beginning of its id, as long as no other begins so. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

const ID = /^[a-z0-9]{1,32}$/;
const FULL_LENGTH = 21;
const MAX_SHOWN = 5;

export function isFullId(text: string): boolean {
  return text.length >= FULL_LENGTH;
}

export function checkIdText(text: string): string {
  if (!ID.test(text)) throw invalidArgument("SANDBOX", text, "an id of `holdfast ps`, or the beginning of one");
  return text;
}

/** Those that run count before those that have ended: a prefix is typed for what is there. */
export function chooseByPrefix(
  prefix: string,
  ids: readonly { readonly id: string; readonly status: string }[],
): string {
  const fitting = ids.filter(({ id }) => id.startsWith(prefix));
  const exact = fitting.find(({ id }) => id === prefix);
  if (exact !== undefined) return exact.id;
  const alive = fitting.filter(({ status }) => status !== "ended");
  const candidates = alive.length > 0 ? alive : fitting;
  const [only, ...others] = candidates;
  if (only === undefined) {
    throw new HoldfastError("sandbox_not_found", `no sandbox has an id that begins with ${prefix}`, {
      hint: "`holdfast ps --all` lists those there are.",
    });
  }
  if (others.length === 0) return only.id;
  const shown = candidates.slice(0, MAX_SHOWN).map(({ id }) => id);
  const more = candidates.length > MAX_SHOWN ? ` and ${candidates.length - MAX_SHOWN} more` : "";
  throw new HoldfastError("invalid_argument", `SANDBOX: ${prefix} fits ${shown.join(", ")}${more}`, {
    hint: "Type more of the id.",
    details: { field: "SANDBOX" },
  });
}
