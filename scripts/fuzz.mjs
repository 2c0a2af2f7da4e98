// `npm run fuzz [-- SECONDS]`: feeds the guest's parsers with what a hostile peer might send, so long for each of them.
import { handOver, main } from "./run.mjs";
import { setup } from "./setup.mjs";

const DEFAULT_SECONDS = "150";

await main(async () => {
  const seconds = process.argv[2] ?? DEFAULT_SECONDS;
  if (!/^[1-9]\d*$/.test(seconds)) throw new Error(`SECONDS must be a whole number of seconds, got ${seconds}`);
  await setup({ fuzz: true });
  return await handOver("make", ["-C", "guest", "fuzz-run", `SECONDS=${seconds}`]);
});
