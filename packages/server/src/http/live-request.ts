/** Which sandbox a request is for. The dispatcher finds out; whoever serves the request asks here. */
import type { IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import type { LiveSandbox } from "../sandboxes/types.js";

const live = new WeakMap<IncomingMessage, LiveSandbox>();

export function setLiveSandbox(request: IncomingMessage, sandbox: LiveSandbox): void {
  live.set(request, sandbox);
}

export function liveSandboxOf(request: IncomingMessage): LiveSandbox {
  const sandbox = live.get(request);
  if (sandbox === undefined) throw new HoldfastError("engine_fault", "a request reached envd without a sandbox");
  return sandbox;
}
