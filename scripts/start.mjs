// `npm start`: sets up what is missing, then shows what Holdfast does. Arguments go to `holdfast tour`.
import { asRoot, handOver, main } from "./run.mjs";
import { CLI, setup } from "./setup.mjs";

await main(async () => {
  await setup({ build: true });
  return await handOver(...asRoot(process.execPath, [CLI, "tour", ...process.argv.slice(2)]));
});
