/** How a program inside finds out that it runs in a sandbox, and in which: by E2B's variables and files. */
import type { Sandbox } from "@holdfast/engine";

const DIRECTORY = "/run/e2b";

export function identityOf({ id }: Pick<Sandbox, "id">): Readonly<Record<string, string>> {
  return { E2B_SANDBOX: "true", E2B_SANDBOX_ID: id };
}

/** For programs that are started with an environment of their own. A copy of a sandbox has those of the original until then. */
export async function writeIdentity(sandbox: Pick<Sandbox, "id" | "files">): Promise<void> {
  const writes = Object.entries(identityOf(sandbox)).map(([name, value]) =>
    sandbox.files.write(`${DIRECTORY}/.${name}`, value, { user: "root" }),
  );
  await Promise.all(writes);
}
