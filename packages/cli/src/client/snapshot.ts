/** `holdfast snapshot` and `holdfast fork`. */
import { formatBytes, formatDuration, invalidArgument } from "@holdfast/protocol";
import { checkNewNames } from "../images/new-names.js";
import { parseCount } from "../parse-flags.js";
import { nameFlag } from "../run/name-flag.js";
import { note } from "../text/notes.js";
import { parseLifetime } from "./create-plan.js";
import type { ServerFlags } from "./find-server.js";
import { ServerClient } from "./server-client.js";

export interface SnapshotFlags extends ServerFlags {
  readonly tag?: string;
  readonly json?: boolean;
}

export interface ForkFlags extends ServerFlags {
  readonly count?: string;
  readonly timeout?: string;
  readonly json?: boolean;
}

const MOST_FORKS = 100;

export async function snapshot(name: string, flags: SnapshotFlags): Promise<void> {
  checkNewNames(flags.tag === undefined ? [] : [flags.tag], "--tag");
  const sandbox = await (await ServerClient.open(flags)).find(name);
  try {
    const taken = await sandbox.snapshot({ name: flags.tag });
    process.stdout.write(`${flags.json === true ? JSON.stringify(taken) : taken.image.id}\n`);
    const { sizeBytes, frozenMs, syncMs, method } = taken;
    note(
      `kept ${formatBytes(sizeBytes)} of files, and no processes; it stood still for ${formatDuration(frozenMs)}, ` +
        `${formatDuration(syncMs)} of that until its writes were on the disk (${method})`,
    );
  } catch (error) {
    throw nameFlag(error, [[/^(name|image)\b/, "--tag"]]);
  }
}

export async function fork(name: string, flags: ForkFlags): Promise<void> {
  const count = parseForks(flags.count ?? "1");
  const timeoutMs = flags.timeout === undefined ? undefined : parseLifetime(flags.timeout);
  const sandbox = await (await ServerClient.open(flags)).find(name);
  const forks = await sandbox.fork({ count, timeoutMs });
  const { restored, method } = forks;
  if (flags.json === true) {
    const sandboxes = await Promise.all(forks.map((made) => made.info()));
    process.stdout.write(`${JSON.stringify({ sandboxes, restored, method })}\n`);
    return;
  }
  process.stdout.write(forks.map(({ id }) => `${id}\n`).join(""));
  const made = forks.length === 1 ? "1 sandbox" : `${forks.length} sandboxes`;
  note(`${made} with the ${restored} of ${sandbox.id}, and none of its processes (${method})`);
}

function parseForks(text: string): number {
  const count = parseCount("--count", text);
  if (count < 1 || count > MOST_FORKS) throw invalidArgument("--count", text, `a number from 1 to ${MOST_FORKS}`);
  return count;
}
