/**
 * Records of /dev/kmsg and the kernel's words on OOM kills, as pure functions. Process names and the names of commands'
 * cgroups are chosen by whoever runs in the sandbox: a match must not be steered by them.
 */

export interface KernelRecord {
  readonly timeUsec: number;
  readonly message: string;
}

/** `6,1234,5678901,-;message`, then lines of properties. Undefined for what a process wrote: the kernel marks those. */
export function parseKernelRecord(text: string): KernelRecord | undefined {
  const match = /^(\d+),\d+,(\d+),[^;]*;([^\n]*)/.exec(text);
  if (match?.[3] === undefined) return undefined;
  const facility = Number(match[1]) >> 3;
  return facility === 0 ? { timeUsec: Number(match[2]), message: match[3] } : undefined;
}

export type OomRecord =
  | { readonly kind: "cgroup"; readonly pid: number; readonly taskMemcg: string }
  | {
      readonly kind: "victim";
      readonly pid: number;
      readonly name: string;
      readonly rssBytes: number;
      readonly uid: number | undefined;
      readonly scope: "memcg" | "host";
    };

export function parseOomMessage(message: string): OomRecord | undefined {
  return message.startsWith("oom-kill:") ? parseCgroupLine(message) : parseVictimLine(message);
}

/** Greedy up to the last parenthesis that is followed by the kernel's own fields: a name may imitate them. */
const VICTIM = new RegExp(
  "^(Memory cgroup out of memory|Out of memory(?: \\([^)]*\\))?): Killed process (\\d+) \\((.*)\\) " +
    "total-vm:\\d+kB, anon-rss:(\\d+)kB, file-rss:(\\d+)kB(?:, shmem-rss:(\\d+)kB)?(?:, UID:(\\d+)(?: .*)?)?$",
);

function parseVictimLine(message: string): OomRecord | undefined {
  const match = VICTIM.exec(message);
  if (match === null) return undefined;
  const [, words, pid, name, anon, file, shmem, uid] = match;
  return {
    kind: "victim",
    pid: Number(pid),
    name: printableName(name ?? ""),
    rssBytes: (Number(anon) + Number(file) + Number(shmem ?? 0)) * 1024,
    uid: uid === undefined ? undefined : Number(uid),
    scope: words?.startsWith("Memory cgroup") === true ? "memcg" : "host",
  };
}

/**
 * `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=…,oom_memcg=/a,task_memcg=/a/b,task=name,pid=1,uid=2`. Both paths may hold
 * any of these words. The victim's cgroup is the one that ran out or lies below it: the cut that makes this true is right.
 */
function parseCgroupLine(message: string): OomRecord | undefined {
  const end = /,pid=(\d+),uid=\d+$/.exec(message);
  if (end === null) return undefined;
  const text = message.slice(0, end.index);
  const taskMemcg = cutTaskMemcg(text);
  return taskMemcg === undefined ? undefined : { kind: "cgroup", pid: Number(end[1]), taskMemcg };
}

const TASK_MEMCG = ",task_memcg=";
const OOM_MEMCG = ",oom_memcg=";

function cutTaskMemcg(text: string): string | undefined {
  const oomAt = text.indexOf(OOM_MEMCG);
  const firstTaskAt = text.indexOf(TASK_MEMCG);
  // Out of memory on the whole host: no cgroup is named before the victim's.
  if (oomAt === -1 || firstTaskAt < oomAt) return firstTaskAt === -1 ? undefined : cutName(text, firstTaskAt);
  for (let at = firstTaskAt; at !== -1; at = text.indexOf(TASK_MEMCG, at + 1)) {
    const oomMemcg = text.slice(oomAt + OOM_MEMCG.length, at);
    const taskMemcg = cutName(text, at);
    // At the root of the hierarchy there is no limit, so this path is never "/".
    if (taskMemcg === oomMemcg || taskMemcg?.startsWith(`${oomMemcg}/`) === true) return taskMemcg;
  }
  return undefined;
}

/** The path between `task_memcg=` and the process name. */
function cutName(text: string, at: number): string | undefined {
  const path = text.slice(at + TASK_MEMCG.length);
  const nameAt = path.lastIndexOf(",task=");
  return nameAt === -1 ? undefined : path.slice(0, nameAt);
}

/** The log writes bytes that are not printable ASCII as `\xNN`. What is left of control is shown as U+FFFD. */
function printableName(escaped: string): string {
  const bytes = escaped.replace(/\\x([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  const name = Buffer.from(bytes, "latin1").toString("utf8");
  // C: control, format (which turns text around), surrogates. Z: line and paragraph separators.
  return name.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\uFFFD");
}
