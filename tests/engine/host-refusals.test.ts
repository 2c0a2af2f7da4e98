/** What the host does not offer is refused, with the remedy; nothing ever runs without its sandbox. */
import { spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine } from "@holdfast/engine";
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { buildEngine, runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { SMALL_LIMITS } from "../helpers/use-engine.js";

interface Report {
  readonly ran?: unknown;
  readonly error?: { readonly name: string; readonly code: string; readonly message: string; readonly hint?: string };
}

/** Changes that only the script's own mount namespace sees. */
const inOwnMounts = (change: string) => ["unshare", "--mount", "sh", "-c", `${change}\nexec "$@"`, "refuse"];

const HIDE_BWRAP = `
  for directory in $(echo "$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" | tr ':' ' '); do
    [ -f "$directory/bwrap" ] && mount --bind /dev/null "$directory/bwrap"
  done`;
const CGROUPS_READ_ONLY =
  "awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts | while read -r point; do mount -o remount,bind,ro \"$point\" || exit 1; done";
const LIMIT = "/proc/sys/user/max_user_namespaces";
const NO_CGROUPS = "umount -R -l /sys/fs/cgroup";

describe("a host", () => {
  let before: Inventory;
  let directory: string;
  let mark: string;
  beforeAll(buildEngine, patienceMs(60_000));
  beforeEach(() => {
    before = takeInventory();
    directory = mkdtempSync(OUR_DIRECTORIES);
    chmodSync(directory, 0o777);
    mkdirSync(`${directory}/shared`, { mode: 0o777 });
    chmodSync(`${directory}/shared`, 0o777);
    mark = `${directory}/shared/mark`;
  });
  afterEach(async () => {
    rmSync(directory, { recursive: true, force: true });
    await assertNoLeaks(before);
  });

  const run = (prefix: readonly string[], pool = "btrfs"): ScriptProcess =>
    runScript("refused.mjs", [`${directory}/state`, mark, pool], prefix);

  async function expectRefused(script: ScriptProcess, message: RegExp, hint: RegExp): Promise<void> {
    const report = await script.next<Report>();
    await script.exited;
    expect(report.ran).toBeUndefined();
    expect(report.error).toMatchObject({
      name: "HoldfastError",
      code: "host_unsupported",
      message: expect.stringMatching(message),
      hint: expect.stringMatching(hint),
    });
    expect(existsSync(mark)).toBe(false);
  }

  it("without bubblewrap is refused", async () => {
    await expectRefused(run(inOwnMounts(HIDE_BWRAP)), /bubblewrap.*not installed/, /apt-get install bubblewrap/);
  });

  it("whose cgroups are read-only is refused", async () => {
    await expectRefused(run(inOwnMounts(CGROUPS_READ_ONLY)), /cgroup/, /writable|root|delegat/i);
  });

  it("whose cgroups became read-only while sandboxes of ours were in them is refused", async () => {
    const engine = await BubblewrapEngine.open({ stateDirectory: `${directory}/other`, pool: "dir" });
    await engine.create({ limits: SMALL_LIMITS });
    try {
      await expectRefused(run(inOwnMounts(CGROUPS_READ_ONLY)), /cgroup/, /writable|root|delegat/i);
    } finally {
      await engine.close({ sandboxes: "kill" });
    }
  });

  it("without cgroups is refused", async () => {
    await expectRefused(run(inOwnMounts(NO_CGROUPS)), /cgroup|memory/, /mount|cgroup/i);
  });

  it("on which we are not root is refused", async () => {
    // It may read what only root can: the checkout may be in root's home.
    const caps = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"];
    await expectRefused(run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", ...caps]), /root/, /sudo/);
  });

  it("that refuses user namespaces is refused", async () => {
    // The limit belongs to a user namespace: in one of our own, in which root is root, it is nobody else's.
    const holder = spawn("unshare", ["--user", "sleep", "1000"], { stdio: "ignore" });
    onTestFinished(() => void holder.kill("SIGKILL"));
    const ours = readlinkSync("/proc/self/ns/user");
    while (readlinkSync(`/proc/${holder.pid}/ns/user`) === ours) await sleep(5);
    for (const map of ["uid_map", "gid_map"]) writeFileSync(`/proc/${holder.pid}/${map}`, "0 0 4294967295\n");
    const limitBefore = readFileSync(LIMIT, "utf8");
    const script = run(
      ["nsenter", "--user", "-t", String(holder.pid), "sh", "-c", `echo 0 >${LIMIT} && exec "$@"`, "refuse"],
      "dir",
    );
    await expectRefused(script, /user namespace/, /max_user_namespaces/);
    expect(readFileSync(LIMIT, "utf8")).toBe(limitBefore);
  });

  it("without btrfs or loop devices is refused, and told of the weaker pool by name", async () => {
    const hideTools =
      'for tool in mkfs.btrfs; do p=$(command -v $tool) && mount --bind /dev/null "$(readlink -f "$p")"; done';
    await expectRefused(run(inOwnMounts(hideTools)), /mkfs\.btrfs|pool/, /doctor|dir|btrfs/);
  });

  it("that has everything is not refused", async () => {
    const script = run(["env"]);
    const report = await script.next<Report>();
    expect(report).toEqual({ ran: { kind: "exited", code: expect.any(Number) } });
    await script.exited;
    // It ran, but inside: out here there is no mark.
    expect(existsSync(mark)).toBe(false);
  });
});
