/** What requests are given of a sandbox that runs, and how they learn that it no longer does. */
import { setMaxListeners } from "node:events";
import type { Sandbox } from "@holdfast/engine";
import type { SandboxRow } from "../store/store.js";
import type { LiveCommands, LiveSandbox } from "./types.js";

export interface Live {
  readonly sandbox: LiveSandbox;
  readonly gone: AbortController;
}

export function createLive(row: () => SandboxRow, sandbox: Sandbox, commands: LiveCommands): Live {
  const gone = new AbortController();
  // Every stream of the sandbox listens, and there may be thousands.
  setMaxListeners(0, gone.signal);
  return {
    gone,
    sandbox: {
      id: sandbox.id,
      get row() {
        return row();
      },
      sandbox,
      commands,
      gone: gone.signal,
    },
  };
}
