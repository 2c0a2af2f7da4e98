/** `holdfast host`. */
import { coloursFor } from "../text/colours.js";
import type { ServerFlags } from "./find-server.js";
import { hostText } from "./host-text.js";
import { ServerClient } from "./server-client.js";

export interface HostFlags extends ServerFlags {
  readonly json?: boolean;
}

export async function host(flags: HostFlags): Promise<void> {
  const info = await (await ServerClient.open(flags)).host();
  process.stdout.write(flags.json === true ? `${JSON.stringify(info)}\n` : hostText(info, coloursFor(process.stdout)));
}
