/** `holdfast create`. */
import type { CreateSandboxBody } from "@holdfast/protocol";
import { nameFlag } from "../run/name-flag.js";
import { memoryDifference } from "../text/memory-difference.js";
import { note } from "../text/notes.js";
import { type CreateLimitFlags, planCreate } from "./create-plan.js";
import type { ServerFlags } from "./find-server.js";
import { ServerClient } from "./server-client.js";

export interface CreateFlags extends ServerFlags, CreateLimitFlags {
  readonly json?: boolean;
}

export async function create(flags: CreateFlags): Promise<void> {
  const body: CreateSandboxBody = planCreate(flags, process.env);
  const server = await ServerClient.open(flags);
  try {
    const sandbox = await server.create(body);
    const info = await sandbox.info();
    process.stdout.write(`${flags.json === true ? JSON.stringify(info) : sandbox.id}\n`);
    const difference = memoryDifference(info.memory);
    if (difference !== undefined) note(difference);
  } catch (error) {
    throw nameFlag(error);
  }
}
