// `npm run bench -- <name> [arguments]` runs bench/<name>.ts. It and the packages are compiled first: what users run
// is measured, not what the tests load. Without a name it lists what there is.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { asRoot, handOver, main, root, run, SetupError } from "./run.mjs";
import { setup } from "./setup.mjs";

await main(async () => {
  const [name, ...args] = process.argv.slice(2);
  const names = readdirSync(join(root, "bench"))
    .filter((entry) => entry.endsWith(".ts"))
    .map((entry) => entry.slice(0, -".ts".length));
  if (!names.includes(name)) {
    const problem = name === undefined ? "Which benchmark?" : `There is no benchmark "${name}".`;
    throw new SetupError([problem, ...names.map((each) => `  npm run bench -- ${each}`)].join("\n"));
  }
  await setup({ build: true });
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-b", "bench"], "The benchmark did not compile.");
  return await handOver(...asRoot(process.execPath, [join(root, "bench/dist", `${name}.js`), ...args]));
});
