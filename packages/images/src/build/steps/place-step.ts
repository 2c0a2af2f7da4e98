/** Steps that make a place: a work directory, a user. By the guest, so that they work in images that have no shell. */
import { HoldfastError } from "@holdfast/protocol";
import type { RecipeStep } from "@holdfast/recipe";
import { readUsersFile, userInside } from "../../runtime/image-user.js";
import { insidePath } from "../apply-step.js";
import { runCommand } from "../run-command.js";
import { failureOf, StepError } from "../step-failure.js";
import { ROOT, type StepJob } from "./step-job.js";

const FIRST_UID = 1000;

export async function runWorkdirStep(job: StepJob, step: Extract<RecipeStep, { kind: "workdir" }>): Promise<void> {
  try {
    const user = await userInside(job.sandbox, job.config.user ?? "root");
    await job.sandbox.files.makeDirectory(insidePath(job.config, step.path), { user, parents: true });
  } catch (reason) {
    const error = HoldfastError.from(reason);
    throw new StepError(
      { message: `${job.failing.what} failed: ${error.message}`, hint: error.hint ?? null },
      { cause: error },
    );
  }
}

export async function runUserStep(job: StepJob, { name }: Extract<RecipeStep, { kind: "user" }>): Promise<void> {
  const users = await readUsersFile(job.sandbox, "/etc/passwd");
  if (users.some((line) => line.split(":")[0] === name)) {
    job.onInfo(`the image knows ${name}`);
    return;
  }
  const shell = (await exists(job, "/bin/bash")) ? "/bin/bash" : "/bin/sh";
  try {
    const spec = { argv: ["useradd", "-m", "-s", shell, "--", name], user: ROOT, cwd: "/" };
    const failure = failureOf(await runCommand(job.sandbox, spec, job.run), job.failing);
    if (failure !== undefined) throw failure;
  } catch (reason) {
    if (!(reason instanceof HoldfastError) || reason.code !== "command_failed_to_start") throw reason;
    await addUser(job, name, shell, users);
  }
}

/** What `useradd` does where there is none. */
async function addUser(job: StepJob, name: string, shell: string, users: readonly string[]): Promise<void> {
  const { files } = job.sandbox;
  const groups = await readUsersFile(job.sandbox, "/etc/group");
  const taken = new Set([...users, ...groups].map((line) => Number(line.split(":")[2])));
  let id = FIRST_UID;
  while (taken.has(id)) id += 1;
  const home = `/home/${name}`;
  await writeLines(job, "/etc/group", [...groups, `${name}:x:${id}:`], 0o644);
  await writeLines(job, "/etc/passwd", [...users, `${name}:x:${id}:${id}::${home}:${shell}`], 0o644);
  if (await exists(job, "/etc/shadow")) {
    const { mode } = await files.stat("/etc/shadow", { user: "root" });
    await writeLines(
      job,
      "/etc/shadow",
      [...(await readUsersFile(job.sandbox, "/etc/shadow")), `${name}:!:::::::`],
      mode & 0o7777,
    );
  }
  await files.makeDirectory("/home", { user: "root", parents: true });
  await files.makeDirectory(home, { user: name });
}

async function exists(job: StepJob, path: string): Promise<boolean> {
  try {
    await job.sandbox.files.stat(path, { user: "root" });
    return true;
  } catch (reason) {
    if (HoldfastError.from(reason).code === "file_not_found") return false;
    throw reason;
  }
}

async function writeLines(job: StepJob, path: string, lines: readonly string[], mode: number): Promise<void> {
  await job.sandbox.files.write(path, `${lines.join("\n")}\n`, { user: "root", mode, atomic: true, parents: true });
}
