/** The one thing that tests without a kernel have to do without. */
import type { Engine, Sandbox, SandboxSpec } from "@holdfast/engine";
import {
  createSandboxId,
  DEFAULT_SANDBOX_LIMITS,
  describeSandboxCause,
  type SandboxCause,
  type SandboxEnding,
  type SandboxId,
} from "@holdfast/protocol";

const GIB = 1024 ** 3;
const CAPACITY = {
  memoryBytes: 16 * GIB,
  memoryAvailableBytes: 8 * GIB,
  cpus: 4,
  pids: 10_000,
  pidsAvailable: 10_000,
  diskBytes: 100 * GIB,
  diskUsedBytes: 0,
} as const satisfies Partial<Awaited<ReturnType<Engine["capacity"]>>>;

const CALM: ReturnType<Engine["pressure"]> = {
  memory: { stall: undefined, usedBytes: 0, limitBytes: GIB },
  processes: { used: 0, limit: 1000 },
};
const NOTHING = { memoryBytes: 0, pids: 0, diskBytes: 0 };
const ROOM = { memoryBytes: 15 * GIB, pids: 9000, diskBytes: 90 * GIB };

/** Nothing can be built or kept without one. */
const NO_LAYERS: Partial<Engine["layers"]> = { has: () => false, list: () => [], users: () => [] };
const NO_VOLUMES: Partial<Engine["volumes"]> = { list: () => [], users: () => [] };
const NOTHING_WARM: Partial<Engine["warm"]> = { claim: async () => undefined };

/** Sandboxes without a kernel: they are there, are frozen and end, and run nothing. */
export function createFakeEngine(): Engine {
  const alive = new Map<SandboxId, Sandbox>();
  const stopped = new Map<SandboxId, Partial<SandboxSpec>>();

  function make(spec: Partial<SandboxSpec>): Sandbox {
    const id = spec.id ?? createSandboxId();
    const limits = spec.limits ?? DEFAULT_SANDBOX_LIMITS;
    let onEnd: (ending: SandboxEnding) => void = () => {};
    const ended = new Promise<SandboxEnding>((resolve) => {
      onEnd = resolve;
    });
    let state: Sandbox["state"] = "running";
    const finish = async (cause: SandboxCause): Promise<SandboxEnding> => {
      state = "ended";
      alive.delete(id);
      const usage = { memoryPeakBytes: null, cpuMs: 0, wallMs: 1, pidsPeak: null };
      onEnd({ sandboxId: id, cause, usage, message: describeSandboxCause(cause) });
      return ended;
    };
    const fake: Partial<Sandbox> = {
      id,
      createdAt: new Date(),
      limits,
      get state() {
        return state;
      },
      ended,
      finalLook: undefined,
      onMemory: () => () => {},
      commands: async () => [],
      processes: () => [],
      gauge: {
        read: () => CALM,
        countProcesses: () => ({ live: 0, zombies: 0, orphans: 0 }),
        isBusy: false,
        cleanUp: async () => ({ zombiesReaped: 0, orphansEnded: 0, failed: 0 }),
        tell: () => {},
      },
      stats: async () => ({
        memoryBytes: 1024,
        memoryCacheBytes: 512,
        memoryPeakBytes: 2048,
        memoryCeilingBytes: limits.memoryBytes,
        memoryLimitBytes: limits.memoryBytes,
        pids: 2,
        pidsLimit: limits.pids,
        cpuMs: 5,
        diskBytes: 4096,
        diskLimitBytes: limits.diskBytes,
      }),
      freeze: async () => {
        state = "frozen";
      },
      thaw: async () => {
        state = "running";
      },
      reclaim: async () => 0,
      kill: (by) => finish({ kind: "killed", by }),
      expire: (limitMs) => finish({ kind: "timed_out", limitMs }),
      stop: (by) => {
        stopped.set(id, spec);
        return finish({ kind: "killed", by });
      },
    };
    alive.set(id, fake as Sandbox);
    return fake as Sandbox;
  }

  const fake: Partial<Engine> = {
    kind: "fake",
    create: async (spec) => make(spec),
    get: (id) => alive.get(id),
    list: () => [...alive.values()],
    adopt: async () => [],
    stopped: () => [...stopped.keys()],
    boot: async (id) => {
      const spec = stopped.get(id) ?? {};
      stopped.delete(id);
      return make(spec);
    },
    discard: async (id) => void stopped.delete(id),
    salvage: () => false,
    sweep: async () => [],
    endUnowned: async () => [],
    pressure: () => CALM,
    capacity: async () => CAPACITY,
    budget: async () => ({
      host: CAPACITY,
      reserve: NOTHING,
      capacity: ROOM,
      room: ROOM,
      used: NOTHING,
      reserved: NOTHING,
      reservations: [],
      waiting: 0,
    }),
    layers: NO_LAYERS as Engine["layers"],
    volumes: NO_VOLUMES as Engine["volumes"],
    warm: NOTHING_WARM as Engine["warm"],
  };
  return fake as Engine;
}
