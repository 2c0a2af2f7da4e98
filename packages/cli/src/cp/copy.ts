/** `holdfast cp`. */
import type { ServerFlags } from "../client/find-server.js";
import { ServerClient } from "../client/server-client.js";
import { copyIn } from "./copy-in.js";
import { copyOut } from "./copy-out.js";
import { planCopy } from "./places.js";

export interface CopyFlags extends ServerFlags {
  readonly user?: string;
}

/** Resolves to what the process shall exit with: 1 if something was left out. */
export async function copy(source: string, destination: string, flags: CopyFlags): Promise<number> {
  const plan = planCopy(source, destination);
  const server = await ServerClient.open(flags);
  const sandbox = await server.find(plan.direction === "in" ? plan.to.sandbox : plan.from.sandbox);
  const at = { sandbox, user: flags.user };
  return plan.direction === "in" ? copyIn(plan.from, plan.to, at) : copyOut(plan.from, plan.to, at);
}
