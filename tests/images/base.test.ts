/** `base` is made of Debian's packages on first use, by whoever comes first, and by somebody else if that one is killed. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { BubblewrapEngine } from "@holdfast/engine";
import { ensureBase, findBase, type ImageRecord, type Images, openImages, planSandbox } from "@holdfast/images";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs } from "../helpers/scale.js";
import { shell } from "../helpers/use-engine.js";
import { buildImages } from "../helpers/use-images.js";
import { BASE_MS, shareBase } from "./base-helper.js";

interface Said {
  readonly line?: string;
  readonly progress?: { readonly phase: string; readonly share: number };
  readonly image?: string;
  readonly code?: string;
  readonly message?: string;
  readonly hint?: string;
}

async function until(child: ScriptProcess, isIt: (said: Said) => boolean): Promise<Said[]> {
  const all: Said[] = [];
  for (;;) {
    const said = await child.next<Said>();
    all.push(said);
    if (isIt(said)) return all;
    if (said.code !== undefined) throw new Error(`${said.message}\n${said.hint}`);
  }
}

/** Programs that work on a base image, in whatever namespace below ours. */
function workers(): string[] {
  return readdirSync("/proc").flatMap((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      return /mmdebstrap|apt-get|dpkg|holdfast-tar/.test(line) ? [line.replaceAll("\0", " ").slice(0, 100)] : [];
    } catch {
      // It ended, or is no process.
      return [];
    }
  });
}

describe("base", () => {
  let before: Inventory;
  let stateDirectory: string;
  let engine: BubblewrapEngine;
  let images: Images;
  const children: ScriptProcess[] = [];
  const never = new AbortController().signal;

  beforeAll(async () => {
    buildImages();
    before = takeInventory();
    stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    engine = await BubblewrapEngine.open({ stateDirectory });
    images = await openImages({ engine, stateDirectory });
  }, patienceMs(60_000));

  afterAll(async () => {
    for (const { child } of children) child.kill("SIGKILL");
    await Promise.all(children.map(({ exited }) => exited));
    await images.close();
    await engine.close({ sandboxes: "kill" });
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  }, patienceMs(60_000));

  function make(mirror?: string): ScriptProcess {
    const child = runScript("base-maker.mjs", [stateDirectory, ...(mirror === undefined ? [] : [mirror])]);
    children.push(child);
    return child;
  }

  async function expectNothing(): Promise<void> {
    await expect.poll(workers, { timeout: patienceMs(3000) }).toEqual([]);
    expect(findBase(images.context)).toBeUndefined();
    expect(engine.layers.list()).toEqual([]);
    expect(readdirSync(images.context.scratchDirectory)).toEqual([]);
    expect(readFileSync("/proc/self/mountinfo", "utf8")).not.toContain("mmdebstrap");
  }

  it("says what is wrong if the mirror cannot be reached", { timeout: patienceMs(60_000) }, async () => {
    const mirror = "http://127.0.0.1:9/debian";
    const said = await make(mirror).next<Said>();
    expect(said.line).toBe("building the base image (Debian 12), once");
    const refused = ensureBase(images.context, { mirror, securityMirror: mirror, onLine: () => {}, signal: never });
    await expect(refused).rejects.toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(/^the base image could not be built \(mmdebstrap: exit status \d+\)$/),
      hint: expect.stringMatching(/needs Debian's packages from the mirror.*Connection refused/s),
      details: { step: "base", tail: expect.any(Array) },
    });
    await children[0]?.exited;
    await expectNothing();
  });

  it("leaves nothing when its maker is killed", { timeout: BASE_MS }, async () => {
    const child = make();
    const said = await until(child, ({ progress }) => progress?.phase === "installing the essential ones");
    const shares = said.flatMap(({ progress }) => progress?.share ?? []);
    expect(shares).toEqual([...shares].sort((one, other) => one - other));
    expect(workers()).not.toEqual([]);
    child.child.kill("SIGKILL");
    await child.exited;
    await expect.poll(workers, { timeout: patienceMs(3000) }).toEqual([]);
    // As at the start of the next process.
    await images.store.recover();
    await engine.sweep();
    await expectNothing();
  });

  it("is not made when nobody wants it any more", { timeout: BASE_MS }, async () => {
    const canceled = new AbortController();
    const options = {
      mirror: "http://deb.debian.org/debian",
      securityMirror: "http://deb.debian.org/debian-security",
      onLine: () => {},
    };
    const lines: string[] = [];
    let abortedAtMs = 0;
    const making = ensureBase(images.context, {
      ...options,
      onLine: (line) => lines.push(line),
      onProgress: ({ phase }) => {
        if (phase !== "downloading packages") return;
        abortedAtMs = performance.now();
        canceled.abort(new Error("no longer"));
      },
      signal: canceled.signal,
    });
    // This one never gets its turn.
    const impatient = ensureBase(images.context, { ...options, signal: AbortSignal.timeout(200) });
    await expect(impatient).rejects.toThrow(/timeout/i);
    await expect(making).rejects.toThrow("no longer");
    expect(performance.now() - abortedAtMs).toBeLessThan(patienceMs(3000));
    await expectNothing();
  });

  let base: ImageRecord | undefined;

  it("is made once, however many processes ask for it at once", { timeout: BASE_MS }, async () => {
    const began = performance.now();
    const askers = [make(), make()];
    const lines: string[] = [];
    const here = images.bases.resolve(
      { kind: "base" },
      { owner: null, onLine: (line) => lines.push(line), signal: never },
    );
    const told = await Promise.all(askers.map((asker) => until(asker, ({ image }) => image !== undefined)));
    base = await here;
    console.info(`base: ${Math.round(performance.now() - began)} ms`);
    expect(told.map((said) => said.at(-1)?.image)).toEqual([base.id, base.id]);
    const all = [...told.flat().flatMap(({ line }) => line ?? []), ...lines];
    expect(all.filter((line) => line.startsWith("I: success"))).toHaveLength(1);
    expect(images.store.list()).toHaveLength(1);
    expect(engine.layers.list()).toEqual(base.layers);
    expect(readdirSync(images.context.scratchDirectory)).toEqual([]);
    await Promise.all(askers.map(({ exited }) => exited));
    await shareBase(images, base);
  });

  it("is there at once from then on", async () => {
    const began = performance.now();
    const found = await images.bases.resolve({ kind: "base" }, { owner: "somebody", onLine: () => {}, signal: never });
    expect(found).toEqual(base);
    expect(performance.now() - began).toBeLessThan(patienceMs(20));
    expect(
      await images.bases.resolve(
        { kind: "image", name: "e2bdev/base" },
        { owner: null, onLine: () => {}, signal: never },
      ),
    ).toEqual(base);
  });

  it("has what agents' code expects", { timeout: patienceMs(60_000) }, async () => {
    if (base === undefined) throw new Error("there is no base");
    const sandbox = await engine.create(planSandbox(base).spec);
    const said = async (script: string, user?: string) => {
      const { stdout, stderr, cause } = await shell(sandbox, script, user === undefined ? {} : { user });
      return cause.kind === "exited" && cause.code === 0 ? stdout.trim() : `${script}: ${stdout}${stderr}`;
    };
    expect(await said("id -un; echo $HOME; pwd; stat -c '%U:%G %a' $HOME; touch $HOME/x && echo writable")).toBe(
      "user\n/home/user\n/home/user\nuser:user 755\nwritable",
    );
    expect(await said("sudo -n id -un")).toBe("root");
    expect(await said("id -un", "root")).toBe("root");
    expect(await said("python --version && python3 -c 'import ssl, sqlite3, venv; print(6 * 7)'")).toMatch(
      /^Python 3\.11.*\n42$/,
    );
    expect(await said("pip --version")).toMatch(/^pip \d+.*python 3\.11/);
    expect(await said("node -p 6*7")).toBe("42");
    expect(await said("npm --version && npx --version")).toMatch(/^\d+\.\d+\.\d+\n\d+\.\d+\.\d+$/);
    expect(await said("git init -q /tmp/repository && git -C /tmp/repository status --short --branch")).toBe(
      "## No commits yet on master",
    );
    expect(await said("curl --version | head -n 1")).toMatch(/^curl \d/);
    expect(await said("ss -tln | head -n 1")).toMatch(/^State/);
    expect(await said("TERM=xterm-256color tput colors")).toBe("256");
    expect(await said("bash -lc 'echo $BASH_VERSION'")).toMatch(/^5\.2/);
    expect(await said("ls /etc/ssl/certs/ca-certificates.crt")).toBe("/etc/ssl/certs/ca-certificates.crt");
    expect(await said(". /etc/os-release; echo $VERSION_ID")).toBe("12");
    expect(await said("python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version")).toMatch(/^pip /);
    // Nothing of how it was made, and nobody's but the image's own.
    expect(await said("sudo find / -xdev \\( -nouser -o -nogroup \\) | head")).toBe("");
    expect(await said("ls /var/lib/apt/lists /var/cache/apt/archives | grep -c deb || true")).toBe("0");
    await sandbox.kill("the test");
  });
});
