/** The command line builds images without a server, in the same directory. One that starts beside it takes nothing away. */
import { BubblewrapEngine, createLayerId } from "@holdfast/engine";
import { expect, test } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { SMALL_LIMITS } from "../helpers/use-engine.js";
import { useServer } from "../helpers/use-server.js";

const server = useServer();

test("a server that starts leaves a step's files to the build that is about to make a layer of them", {
  timeout: patienceMs(60_000),
}, async () => {
  const engine = await BubblewrapEngine.open({ stateDirectory: server.stateDirectory });
  try {
    const sandbox = await engine.create({ whenOwnerDies: "end", limits: SMALL_LIMITS });
    await sandbox.files.write("/made", "by the step");
    await sandbox.stop("the end of the step");
    await server.restart();
    const layer = createLayerId();
    await engine.layers.fromStopped(sandbox.id, layer);
    expect(engine.layers.has(layer)).toBe(true);
    await engine.layers.remove(layer);
  } finally {
    await engine.close({ sandboxes: "kill" });
  }
});
