/**
 * Loaded into the server's process ahead of the server itself: says what that process uses, and profiles it. What it is
 * asked comes over the channel to the process that started it.
 */
import { writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";

export type ProbeQuestion =
  | { readonly ask: "usage"; readonly collect: boolean }
  | { readonly ask: "profile" }
  | { readonly ask: "profile-end"; readonly path: string };

export interface ProbeUsage {
  readonly rssBytes: number;
  readonly heapBytes: number;
  /** Buffers, which are outside of the heap. */
  readonly externalBytes: number;
  /** Of all its threads, since it started. */
  readonly cpuMs: number;
}

const SAMPLING_MICROSECONDS = 200;

let session: Session | undefined;

function usage(collect: boolean): ProbeUsage {
  // What nobody holds any more is not what the server needs.
  if (collect) globalThis.gc?.();
  const memory = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    rssBytes: memory.rss,
    heapBytes: memory.heapUsed,
    externalBytes: memory.external,
    cpuMs: (user + system) / 1000,
  };
}

async function beginProfile(): Promise<void> {
  session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: SAMPLING_MICROSECONDS });
  await session.post("Profiler.start");
}

async function endProfile(path: string): Promise<void> {
  const { profile } = (await session?.post("Profiler.stop")) ?? {};
  if (profile !== undefined) writeFileSync(path, JSON.stringify(profile));
  session?.disconnect();
  session = undefined;
}

async function answer(question: ProbeQuestion): Promise<ProbeUsage | null> {
  switch (question.ask) {
    case "usage":
      return usage(question.collect);
    case "profile":
      await beginProfile();
      return null;
    case "profile-end":
      await endProfile(question.path);
      return null;
  }
}

process.on("message", (question: ProbeQuestion) => {
  void answer(question).then((said) => process.send?.(said));
});
// The server ends when it has nothing more to do, whether or not somebody could still ask.
process.channel?.unref();
