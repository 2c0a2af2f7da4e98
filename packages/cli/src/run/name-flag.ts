/** The engine names fields; whoever typed a command line knows flags. */
import { HoldfastError } from "@holdfast/protocol";

type FlagNames = ReadonlyArray<readonly [field: RegExp, flag: string]>;

const FLAGS: FlagNames = [
  [/^limits\.memory(Max)?Bytes\b/, "--memory"],
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
  [/^builder\.memoryMb\b/, "--builder-memory"],
  [/^builder\.runtimeMemoryMb\b/, "--runtime-memory"],
  [/^builder\.cpus\b/, "--cpus"],
  [/^builder\.diskMb\b/, "--disk"],
  [/^builder\.timeoutS\b/, "--timeout"],
  [/^builder\.network\b/, "--network"],
  [/^names(\[\d+\])?\b/, "--tag"],
  [/^platform\b/, "--platform"],
  [/^scratchDirectory\b/, "--scratch"],
  [/^unusedForMs\b/, "--unused-for"],
];

/** `own`: what a field is called on the command line of this very command, where that differs. */
export function nameFlag(reason: unknown, own: FlagNames = []): HoldfastError {
  const error = HoldfastError.from(reason);
  const field = String(error.details.field ?? "");
  const flag = [...own, ...FLAGS].find(([pattern]) => pattern.test(field))?.[1];
  if (error.code !== "invalid_argument" || flag === undefined) return error;
  return new HoldfastError(error.code, error.message.replace(field, flag), {
    hint: error.hint,
    details: { ...error.details, field: flag },
    cause: error,
  });
}
