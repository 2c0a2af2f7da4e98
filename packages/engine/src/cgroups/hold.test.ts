/** Over plain files: what the kernel of v2 says is seen here, whatever this host has. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Hierarchy } from "./hierarchies.js";
import { holdMark, MemoryHold } from "./hold.js";

const MIB = 1024 * 1024;
const LIMIT = 128 * MIB;
const V2 = { name: "unified", version: 2 } as Hierarchy;

let directory: string;
let hold: MemoryHold;
let slow: string[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "hold-"));
  slow = [];
  write({ "memory.max": LIMIT, "memory.high": "max", "memory.stat": "inactive_file 0" });
  use(8 * MIB);
  ask(0);
  hold = new MemoryHold(V2, directory);
});
afterEach(() => rmSync(directory, { recursive: true }));

function write(files: Readonly<Record<string, string | number>>): void {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), `${text}\n`);
}
const use = (bytes: number) => write({ "memory.current": bytes });
const ask = (times: number) =>
  write({ "memory.events": `low 0\nhigh ${times + 7}`, "memory.events.local": `high ${times}` });
/** What is written into a plain file leaves the end of a longer text there. */
const mark = () => /^(max|\d+)/.exec(readFileSync(join(directory, "memory.high"), "utf8"))?.[0];

async function slowly(file: string, value: string): Promise<boolean> {
  slow.push(`${file.slice(directory.length + 1)}=${value}`);
  write({ "memory.high": value });
  return true;
}

describe("on v2, who is at the mark", () => {
  beforeEach(async () => {
    await hold.set(true, slowly);
    use(holdMark(LIMIT));
  });

  test("and asks for nothing is not held, however often one looks", () => {
    for (let look = 0; look < 5; look++) expect(hold.shortage()).toBe("none");
  });

  test("and asks for more is held, until that is seen to", async () => {
    ask(1);
    expect([hold.shortage(), hold.shortage()]).toEqual(["held", "held"]);
    await hold.set(false, slowly);
    expect(mark()).toBe("max");
    await hold.set(true, slowly);
    expect(hold.shortage()).toBe("none");
    ask(2);
    expect(hold.shortage()).toBe("held");
  });

  test("stays held when it is told to hold what it holds already", async () => {
    ask(1);
    await hold.set(true, slowly);
    expect(hold.shortage()).toBe("held");
  });

  test("is not held for what page cache it could do without", () => {
    ask(1);
    write({ "memory.stat": `inactive_file ${32 * MIB}` });
    expect(hold.shortage()).toBe("none");
    // What it asked for then is no question any more.
    write({ "memory.stat": "inactive_file 0" });
    expect(hold.shortage()).toBe("none");
  });

  test("is not held for what was asked for before somebody took it over", () => {
    ask(5);
    const taken = new MemoryHold(V2, directory);
    expect(taken.shortage()).toBe("none");
    ask(6);
    expect(taken.shortage()).toBe("held");
  });
});

describe("on v2, a mark", () => {
  test("that much lies above is written elsewhere, because the kernel takes that back first", async () => {
    use(LIMIT - MIB);
    write({ "memory.max": LIMIT / 2 });
    await hold.set(true, slowly);
    expect(slow).toEqual([`memory.high=${holdMark(LIMIT / 2)}`]);
  });

  test("is written here if that cannot be had", async () => {
    use(LIMIT - MIB);
    write({ "memory.max": LIMIT / 2 });
    await hold.set(true, async () => false);
    expect(mark()).toBe(String(holdMark(LIMIT / 2)));
  });

  test("ends as it was asked for last", async () => {
    use(LIMIT - MIB);
    write({ "memory.max": LIMIT / 2 });
    const late = async (file: string, value: string) => {
      await new Promise((resume) => setImmediate(resume));
      return slowly(file, value);
    };
    await Promise.all([hold.set(true, late), hold.set(false, late)]);
    expect(mark()).toBe("max");
  });
});
