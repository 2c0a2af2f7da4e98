// `npm run bench` takes all figures of bench/, `npm run bench -- --help` says what else there is. It and the packages
// are compiled first: what users run is measured, not what the tests load.
import { join } from "node:path";
import { asRoot, handOver, main, root, run } from "./run.mjs";
import { setup } from "./setup.mjs";

await main(async () => {
  await setup({ build: true });
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-b", "bench"], "The benchmarks did not compile.");
  return await handOver(...asRoot(process.execPath, [join(root, "bench/dist/main.js"), ...process.argv.slice(2)]));
});
