import { expect, test } from "vitest";
import { LifeTurns } from "./life-turns.js";

/** Something that goes on until it is told to end. */
function open(): { readonly work: () => Promise<void>; readonly begun: Promise<void>; end(error?: Error): void } {
  let begin: () => void = () => {};
  let end: (error?: Error) => void = () => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const over = new Promise<void>((resolve, reject) => {
    end = (error) => (error === undefined ? resolve() : reject(error));
  });
  return {
    work: () => {
      begin();
      return over;
    },
    begun,
    end: (error) => end(error),
  };
}

function aliveTurns(): LifeTurns {
  const turns: LifeTurns = new LifeTurns(() => {
    if (turns.isEnding) throw new Error("ended");
  });
  return turns;
}

test("one change comes after the other, and others find what is going on", async () => {
  const turns = aliveTurns();
  const [pause, resume] = [open(), open()];
  const order: string[] = [];
  const pausing = turns.take("pausing", pause.work).then(() => order.push("paused"));
  const resuming = turns.take("resuming", resume.work).then(() => order.push("resumed"));
  await pause.begun;
  expect(turns.transition).toBe("pausing");
  pause.end();
  await resume.begun;
  expect(turns.transition).toBe("resuming");
  resume.end();
  await Promise.all([pausing, resuming, turns.settled()]);
  expect(order).toEqual(["paused", "resumed"]);
  expect(turns.transition).toBeUndefined();
});

test("a change that fails keeps nobody from the next", async () => {
  const turns = aliveTurns();
  const failing = turns.take("pausing", () => Promise.reject(new Error("no")));
  const next = turns.take(undefined, async () => "done");
  await expect(failing).rejects.toThrow("no");
  expect(await next).toBe("done");
  await turns.settled();
});

test("an end is seen at once, waits for what goes on, and lets nothing else begin", async () => {
  const turns = aliveTurns();
  const pause = open();
  const pausing = turns.take("pausing", pause.work);
  await pause.begun;
  const late = turns.take("resuming", async () => "too late");
  const ending = turns.end(async () => "ended");
  expect(turns.isEnding).toBe(true);
  pause.end();
  await pausing;
  await expect(late).rejects.toThrow("ended");
  expect(await ending).toBe("ended");
  expect(turns.isEnding).toBe(true);
});

test("an end that is taken back leaves it as it was", async () => {
  const turns = aliveTurns();
  const ending = turns.end(async () => {
    turns.takeBackEnd();
    throw new Error("its files are there still");
  });
  await expect(ending).rejects.toThrow("there still");
  expect(turns.transition).toBeUndefined();
  expect(await turns.take(undefined, async () => "goes on")).toBe("goes on");
});
