/** `holdfast create`. */
import type { CreateSandboxBody } from "@holdfast/protocol";
import { nameFlag } from "../run/name-flag.js";
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
    process.stdout.write(`${flags.json === true ? JSON.stringify(await sandbox.info()) : sandbox.id}\n`);
  } catch (error) {
    throw nameFlag(error);
  }
}
