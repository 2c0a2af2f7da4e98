// `npm start`: sets up what is missing, then serves; arguments after `--` go to `holdfast serve`. `npm run tour`: the
// same set-up, then the tour.
import { asRoot, handOver, main } from "./run.mjs";
import { CLI, setup } from "./setup.mjs";

await main(async () => {
  await setup({ build: true });
  const [first, ...rest] = process.argv.slice(2);
  const command = first === "tour" ? ["tour", ...rest] : ["serve", ...process.argv.slice(2)];
  return await handOver(...asRoot(process.execPath, ["--max-old-space-size=1024", CLI, ...command]));
});
