/** `holdfast postmortem`. */
import { coloursFor } from "../text/colours.js";
import type { ServerFlags } from "./find-server.js";
import { postmortemText } from "./postmortem-text.js";
import { ServerClient } from "./server-client.js";

export interface PostmortemFlags extends ServerFlags {
  readonly json?: boolean;
}

export async function postmortem(name: string, flags: PostmortemFlags): Promise<void> {
  const sandbox = await (await ServerClient.open(flags)).find(name);
  const found = await sandbox.postmortem();
  process.stdout.write(
    flags.json === true ? `${JSON.stringify(found)}\n` : postmortemText(found, coloursFor(process.stdout)),
  );
}
