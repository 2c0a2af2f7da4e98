/** Over plain files: hosts of other layouts than this one's are seen here too. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CgroupFigures } from "./figures.js";

const STALL = "some avg10=8.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=9\n";
let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "figures-"));
});
afterEach(() => rmSync(root, { recursive: true }));

function write(files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

const LAYOUTS = {
  v2: {
    paths: () => ({ unified: join(root, "u") }),
    files: {
      "u/memory.pressure": STALL,
      "u/cmd/memory.current": "1000\n",
      "u/cmd/memory.stat": "anon 600\nactive_file 100\ninactive_file 200\n",
      "u/cmd/pids.current": "9\n",
      "u/cmd/cgroup.threads": "",
      "u/cmd/3/cgroup.threads": "11\n12\n",
      "u/cmd/3/nested/cgroup.threads": "13\n",
      "u/cmd/7/cgroup.threads": "21\n",
      "u/cmd/other/cgroup.threads": "31\n",
    },
    stall: { some: 8, full: 3 },
  },
  hybrid: {
    paths: () => ({ memory: join(root, "m"), pids: join(root, "p"), unified: join(root, "u") }),
    files: {
      "u/memory.pressure": STALL,
      "m/cmd/memory.usage_in_bytes": "1000\n",
      "m/cmd/memory.stat": "total_active_file 100\ntotal_inactive_file 200\nactive_file 1\n",
      "p/cmd/pids.current": "9\n",
      "p/cmd/tasks": "",
      "p/cmd/3/tasks": "11\n12\n",
      "p/cmd/3/nested/tasks": "13\n",
      "p/cmd/7/tasks": "21\n",
      "p/cmd/other/tasks": "31\n",
    },
    stall: { some: 8, full: 3 },
  },
  v1: {
    paths: () => ({ memory: join(root, "m"), pids: join(root, "p") }),
    files: {
      "m/cmd/memory.usage_in_bytes": "1000\n",
      "m/cmd/memory.stat": "total_active_file 100\ntotal_inactive_file 200\n",
      "p/cmd/pids.current": "9\n",
      "p/cmd/3/tasks": "11\n12\n13\n",
      "p/cmd/7/tasks": "21\n",
      "p/cmd/other/tasks": "31\n",
    },
    stall: undefined,
  },
} as const;

describe.each(["v2", "hybrid", "v1"] as const)("on %s", (name) => {
  const { paths, files, stall } = LAYOUTS[name];

  test("figures are found where they are kept", () => {
    write(files);
    const figures = new CgroupFigures(paths());
    expect(figures.readStall()).toEqual(stall);
    expect(figures.readTasks()).toBe(9);
    expect(figures.readUsedBytes(0)).toBe(700);
    // Below what matters, page cache is not looked for.
    expect(figures.readUsedBytes(1001)).toBe(1000);
    expect(figures.countTasks()).toEqual({
      counted: 9,
      byCommand: new Map([
        [3, 3],
        [7, 1],
        [null, 1],
      ]),
    });
  });

  test("a sandbox that is gone has nothing", () => {
    const figures = new CgroupFigures(paths());
    expect(figures.readStall()).toBeUndefined();
    expect(figures.readTasks()).toBe(0);
    expect(figures.readUsedBytes(0)).toBe(0);
    expect(figures.countTasks()).toEqual({ counted: 0, byCommand: new Map() });
  });
});
