import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { linkSignals, withLinkedSignal } from "./linked-signal.js";

test("is aborted with the first of its sources, and for its reason", () => {
  const [one, other] = [new AbortController(), new AbortController()];
  const { signal } = linkSignals([undefined, one.signal, other.signal]);
  expect(signal.aborted).toBe(false);
  other.abort("enough");
  one.abort("too late");
  expect(signal.reason).toBe("enough");
  expect(linkSignals([one.signal]).signal.reason).toBe("too late");
});

test("leaves nothing with its sources, and warns of nothing while there are many", async () => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error) => warnings.push(name);
  process.on("warning", onWarning);
  const source = new AbortController();
  const links = Array.from({ length: 50 }, () => linkSignals([source.signal]));
  await new Promise((resolve) => setTimeout(resolve, 10));
  for (const { unlink } of links) unlink();
  expect(getEventListeners(source.signal, "abort")).toEqual([]);
  source.abort();
  expect(links.some(({ signal }) => signal.aborted)).toBe(false);
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});

test("is linked for as long as the work takes, whether or not that goes well", async () => {
  const source = new AbortController();
  const begin = (work: () => Promise<string>) => withLinkedSignal([source.signal], work);
  const count = () => getEventListeners(source.signal, "abort").length;
  expect(await begin(async () => `${count()} linked`)).toBe("1 linked");
  await expect(begin(() => Promise.reject(new Error("torn")))).rejects.toThrow("torn");
  expect(count()).toBe(0);
});
