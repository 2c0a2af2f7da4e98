// `npm run fuzz`: feeds the guest's parsers with what a hostile peer might send. Arguments go to `make -C guest fuzz`.
import { handOver, main } from "./run.mjs";
import { setup } from "./setup.mjs";

await main(async () => {
  await setup({ fuzz: true });
  return await handOver("make", ["-C", "guest", "fuzz", ...process.argv.slice(2)]);
});
