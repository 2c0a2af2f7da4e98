import { expect, test } from "vitest";
import { useCli } from "./use-cli.js";

const cli = useCli();

test("the tour ends every hostile program with its cause and leaves nothing behind", async () => {
  const result = await cli.holdfast(["tour"]);
  const text = result.stdout.toString();
  expect(result.stderr).toBe("");
  for (const [name, cause] of [
    ["glutton", "out_of_memory"],
    ["breeder", "out_of_pids"],
    ["hoarder", "out_of_disk"],
    ["mule", "timed_out"],
    ["chatterbox", "exited"],
  ]) {
    expect(text).toMatch(new RegExp(`^${name} .* ${cause} +[\\d.]+ m?s +nothing `, "m"));
  }
  expect(text).toMatch(/^The neighbour: ran \d+ commands meanwhile, none failed/m);
  expect(text).toMatch(/^The host: .* of memory available before/m);
  expect(text).toContain("holdfast run");
  expect(result.code).toBe(0);
  expect(result.tookMs).toBeLessThan(15_000);
});

test("help, version and completion need nothing of the host", async () => {
  expect((await cli.holdfast(["--version"])).stdout.toString()).toMatch(/^holdfast \d+\.\d+\.\d+\n$/);
  const help = (await cli.holdfast(["help", "run"])).stdout.toString();
  for (const part of ["--memory <size>", "(default: 512m)", "Examples:", "Exit codes:"]) expect(help).toContain(part);
  const completion = await cli.holdfast(["completion", "bash"]);
  expect(completion.stdout.toString()).toContain("complete -o filenames -F _holdfast holdfast");
  expect(await cli.holdfast(["completion", "tcsh"])).toMatchObject({ code: 125 });
});
