import { Readable } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { GuestFiles } from "./files.js";

/** A guest that nobody reaches, but for `reached`, and what every request has to wait for. */
function unreachable() {
  let relieve: () => void = () => {};
  const relief = new Promise<void>((resolve) => {
    relieve = resolve;
  });
  let reached = 0;
  const files = new GuestFiles(
    () => {
      reached++;
      throw new HoldfastError("sandbox_ended", "it is gone");
    },
    () => relief,
  );
  return { files, relieve: () => relieve(), reached: () => reached };
}

async function listed(files: GuestFiles): Promise<void> {
  for await (const _ of files.list("/"));
}

test.each([
  ["a stat", (files: GuestFiles) => files.stat("/x")],
  ["a listing", listed],
  ["a read", (files: GuestFiles) => files.read("/x")],
  ["a write", (files: GuestFiles) => files.write("/x", "")],
  ["a new directory", (files: GuestFiles) => files.makeDirectory("/x")],
  ["a move", (files: GuestFiles) => files.move("/x", "/y")],
  ["a removal", (files: GuestFiles) => files.remove("/x")],
  ["a watch", (files: GuestFiles) => files.watch("/x")],
])("%s is not begun before there is relief, and is told if the sandbox ended meanwhile", async (_what, act) => {
  const { files, relieve, reached } = unreachable();
  const outcome = act(files).then(
    () => "done",
    (error: HoldfastError) => error.code,
  );
  await nextTurn();
  expect(reached()).toBe(0);
  relieve();
  expect(await outcome).toBe("sandbox_ended");
  expect(reached()).toBe(1);
});

test("a watch that is called off before there is relief ends at once", async () => {
  const { files } = unreachable();
  const leaving = new AbortController();
  const watch = files.watch("/x", { signal: leaving.signal });
  leaving.abort();
  await expect(watch).rejects.toMatchObject({ code: "canceled" });
});

test("a listing that is left before there is relief ends at once, whatever comes later", async () => {
  const { files, relieve } = unreachable();
  const entries = files.list("/")[Symbol.asyncIterator]();
  await entries.return?.();
  relieve();
  await nextTurn();
  expect(await entries.next()).toMatchObject({ done: true });
});

test("a source that breaks before there is relief fails the write and nothing else", async () => {
  const { files, relieve } = unreachable();
  const source = new Readable({ read() {} });
  const write = files.write("/x", source);
  source.destroy(new Error("torn"));
  await nextTurn();
  relieve();
  await expect(write).rejects.toThrow("it is gone");
});
