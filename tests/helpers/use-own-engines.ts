/**
 * Engines that a test opens itself, on one state directory, and on a host of a given size if it asks for one. Nothing of
 * them is left after it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { BubblewrapEngine, type BubblewrapEngineOptions } from "@holdfast/engine";
import { afterEach, beforeEach } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "./leaks.js";
import { forgiveZombies } from "./processes.js";
import { makeSmallHost, type SmallHost } from "./small-host.js";

export interface OwnEngines {
  /** New for each test. */
  readonly stateDirectory: string;
  /** From now on, all that is opened has no more than this. */
  onSmallHost(limits: Parameters<typeof makeSmallHost>[0]): SmallHost;
  open(options?: BubblewrapEngineOptions): Promise<BubblewrapEngine>;
  /** Sandboxes and all, if they are not to be kept; else that is done after the test. */
  closeAll(sandboxes?: "kill" | "keep"): Promise<void>;
}

export function useOwnEngines(): OwnEngines {
  let before: Inventory;
  let stateDirectory = "";
  let host: SmallHost | undefined;
  const engines: BubblewrapEngine[] = [];
  const parentBefore = process.env.HOLDFAST_CGROUP_PARENT;

  const closeAll = async (sandboxes: "kill" | "keep" = "kill"): Promise<void> => {
    for (const engine of engines.splice(0)) await engine.close({ sandboxes });
  };
  beforeEach(() => {
    before = takeInventory();
    stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  });
  afterEach(async () => {
    await closeAll();
    host?.remove();
    host = undefined;
    if (parentBefore === undefined) delete process.env.HOLDFAST_CGROUP_PARENT;
    else process.env.HOLDFAST_CGROUP_PARENT = parentBefore;
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  });

  return {
    get stateDirectory() {
      return stateDirectory;
    },
    onSmallHost(limits) {
      host = makeSmallHost(limits);
      process.env.HOLDFAST_CGROUP_PARENT = host.parent;
      return host;
    },
    async open(options = {}) {
      const engine = await BubblewrapEngine.open({ stateDirectory, ...options });
      engines.push(engine);
      return engine;
    },
    closeAll,
  };
}
