/** `holdfast pause` and `holdfast resume`. */
import type { SandboxInfo } from "@holdfast/protocol";
import { note } from "../text/notes.js";
import { shortDuration } from "../text/times.js";
import { parseLifetime } from "./create-plan.js";
import type { ServerFlags } from "./find-server.js";
import { ServerClient } from "./server-client.js";

export interface PauseFlags extends ServerFlags {
  readonly filesOnly?: boolean;
  readonly json?: boolean;
}

export interface ResumeFlags extends PauseFlags {
  readonly timeout?: string;
}

function tell(info: SandboxInfo, text: string, json: boolean | undefined): void {
  if (json === true) process.stdout.write(`${JSON.stringify(info)}\n`);
  else note(`${info.id} ${text}`);
}

export async function pause(name: string, flags: PauseFlags): Promise<void> {
  const sandbox = await (await ServerClient.open(flags)).find(name);
  const info = await sandbox.pause({ memory: flags.filesOnly !== true });
  const kept = info.memoryKept === true ? "with its memory" : "keeping its files";
  tell(info, `is paused ${kept}; \`holdfast resume ${name}\` lets it go on`, flags.json);
}

export async function resume(name: string, flags: ResumeFlags): Promise<void> {
  const timeoutMs = flags.timeout === undefined ? undefined : parseLifetime(flags.timeout);
  const sandbox = await (await ServerClient.open(flags)).find(name);
  const info = await sandbox.resume({
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(flags.filesOnly === true ? { memory: false } : {}),
  });
  const left = info.expiresAt === null ? "" : `, for ${shortDuration(Date.parse(info.expiresAt) - Date.now() + 500)}`;
  tell(info, `runs (boot ${info.boots})${left}`, flags.json);
}
