/** Signals as Go names them, because E2B's clients have always been told in those words. */
const TEXTS = [
  "hangup",
  "interrupt",
  "quit",
  "illegal instruction",
  "trace/breakpoint trap",
  "aborted",
  "bus error",
  "floating point exception",
  "killed",
  "user defined signal 1",
  "segmentation fault",
  "user defined signal 2",
  "broken pipe",
  "alarm clock",
  "terminated",
  "stack fault",
  "child exited",
  "continued",
  "stopped (signal)",
  "stopped",
  "stopped (tty input)",
  "stopped (tty output)",
  "urgent I/O condition",
  "CPU time limit exceeded",
  "file size limit exceeded",
  "virtual timer expired",
  "profiling timer expired",
  "window changed",
  "I/O possible",
  "power failure",
  "bad system call",
];

/** A real-time signal has no name. */
export function signalText(number: number): string {
  return TEXTS[number - 1] ?? `signal ${number}`;
}
