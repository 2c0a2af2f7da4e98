/** The engine names fields; whoever typed a command line knows flags. */
import { HoldfastError } from "@holdfast/protocol";

const FLAGS: ReadonlyArray<readonly [field: RegExp, flag: string]> = [
  [/^limits\.memoryBytes\b/, "--memory"],
  [/^limits\.pids\b/, "--pids"],
  [/^limits\.cpuMillis\b/, "--cpus"],
  [/^limits\.diskBytes\b/, "--disk"],
  [/^limits\.wallMs\b/, "--timeout"],
  [/^mounts\[\d+\]\.(source|target)\b/, "--mount"],
  [/^hostname\b/, "--hostname"],
  [/^image\b/, "--image"],
  [/^stateDirectory\b/, "--state-dir"],
  [/^pool\b/, "--pool"],
  [/^argv\b/, "the command"],
  [/^env\b/, "--env"],
];

export function nameFlag(reason: unknown): HoldfastError {
  const error = HoldfastError.from(reason);
  const field = String(error.details.field ?? "");
  const flag = FLAGS.find(([pattern]) => pattern.test(field))?.[1];
  if (error.code !== "invalid_argument" || flag === undefined) return error;
  return new HoldfastError(error.code, error.message.replace(field, flag), {
    hint: error.hint,
    details: { ...error.details, field: flag },
    cause: error,
  });
}
