// A process that builds. It says a line for each thing that happens to the build, and does what it is told on stdin.
//   node build-process.mjs STATE_DIRECTORY '{"request": {...}}'
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { BubblewrapEngine } from "../../packages/engine/dist/index.js";
import { createBuilder } from "../../packages/images/dist/build/builder.js";
import { openImageStore } from "../../packages/images/dist/store/open-image-store.js";

const [stateDirectory, plan] = process.argv.slice(2);
const { request, pool } = JSON.parse(plan);
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

const log = { info: () => {}, warn: (facts, message) => process.stderr.write(`${message} ${JSON.stringify(facts)}\n`) };
const engine = await BubblewrapEngine.open({ stateDirectory, log, ...(pool === undefined ? {} : { pool }) });
const store = openImageStore({ stateDirectory, layers: engine.layers, log });
const context = {
  engine,
  store,
  stateDirectory,
  scratchDirectory: store.directory,
  tarProgram: fileURLToPath(new URL("../../guest/build/holdfast-tar", import.meta.url)),
  log,
};
const builder = createBuilder(context, { resolve: async (base, { owner }) => store.require(base.name, owner) });
const build = await builder.start(request);
const ended = build.image.then(
  (image) => ({ ended: "ready", image: image.id, info: build.info() }),
  (error) => ({ ended: error.code, message: error.message }),
);

createInterface({ input: process.stdin }).on("line", (line) => {
  if (line === "cancel") void build.cancel("the test");
});

say({ build: build.id, pid: process.pid });
for await (const entry of build.log()) say({ entry });
say(await ended);
await builder.close();
await engine.close({ sandboxes: "kill" });
process.exit(0);
