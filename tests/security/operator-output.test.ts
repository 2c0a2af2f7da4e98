/** What a sandbox says ends up on an operator's terminal and in a log: nothing in it may be a command to either. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { attack } from "../helpers/attack.js";
import { run, SMALL_LIMITS, shell, useEngine } from "../helpers/use-engine.js";

/** Anything below a space, DEL and the C1 controls; and what turns the direction of text around. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;
const EVIL = "\u001b[2J\u001b]0;x\u0007\r\nE\u009b";

async function messageOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error("it did not fail");
}

describe("words of a sandbox", () => {
  const use = useEngine();

  it("cannot bring escape sequences into the name of a process that was killed for memory", async () => {
    const sandbox = await use.create();
    for (const name of ["\u001b[2J\u001b[31mX", "a\nb] oom-kill", "\r\u0007\u009b\u202e", "x) total-vm:1kB"]) {
      const { cause, message, incidents } = await attack(sandbox, "named-hog", [name]);
      expect(cause.kind).toBe("out_of_memory");
      expect(message).not.toMatch(CONTROL);
      expect(
        JSON.parse(JSON.stringify(cause))
          .victims.map((victim: { name: string }) => victim.name)
          .join(""),
      ).not.toMatch(CONTROL);
      expect(JSON.stringify(incidents)).not.toMatch(CONTROL);
    }
  });

  it("cannot invent victims of the OOM killer by a name that looks like the kernel's log", async () => {
    const sandbox = await use.create();
    const { cause } = await attack(sandbox, "named-hog", ["sh),pid=1,uid=0"]);
    const { victims } = cause as unknown as { victims: { name: string; rssBytes: number | null }[] };
    expect(victims.length).toBeLessThanOrEqual(1);
  });

  it("cannot bring escape sequences into the message of a program that is not there", async () => {
    const sandbox = await use.create();
    expect(await messageOf(run(sandbox, [`/tmp/${EVIL}`]))).not.toMatch(CONTROL);
    expect(await messageOf(run(sandbox, ["true"], { cwd: `/tmp/${EVIL}` }))).not.toMatch(CONTROL);
    expect(await messageOf(run(sandbox, ["true"], { user: EVIL }))).not.toMatch(CONTROL);
  });

  it("cannot bring escape sequences into the messages of the file interface", async () => {
    const sandbox = await use.create();
    expect(await messageOf(sandbox.files.stat(`/tmp/${EVIL}`))).not.toMatch(CONTROL);
    expect(await messageOf(sandbox.files.read(`/tmp/${EVIL}`))).not.toMatch(CONTROL);
    await run(sandbox, ["mkdir", `/tmp/${EVIL}`]);
    expect(await messageOf(sandbox.files.read(`/tmp/${EVIL}`))).not.toMatch(CONTROL);
    expect(await messageOf(sandbox.files.write(`/tmp/${EVIL}`, "x"))).not.toMatch(CONTROL);
    await run(sandbox, ["ln", "-s", EVIL, "/tmp/link"]);
    expect(await messageOf(sandbox.files.read("/tmp/link"))).not.toMatch(CONTROL);
    expect(await messageOf(sandbox.dial({ path: `/tmp/${EVIL}` }))).not.toMatch(CONTROL);
  });

  it("cannot bring escape sequences into the message of how a command ended", async () => {
    const sandbox = await use.create();
    const { message } = await shell(
      sandbox,
      `printf '%b' '\\033[2J' >&2; exec -a "$(printf '\\033[31m')" sh -c 'kill -9 $$'`,
    );
    expect(message).not.toMatch(CONTROL);
  });

  it("cannot bring escape sequences into the message of who ended it", async () => {
    const sandbox = await use.create();
    const command = await sandbox.start({ argv: ["sleep", "100"] });
    expect((await command.cancel(EVIL, { graceMs: 0 })).message).not.toMatch(CONTROL);
    expect((await sandbox.kill(EVIL)).message).not.toMatch(CONTROL);
  });

  it("cannot bring escape sequences into the engine's log", async () => {
    const stateDirectory = mkdtempSync(join(tmpdir(), `hf${process.pid.toString(36)}-`));
    const lines: string[] = [];
    const note = (details: unknown, text: string) => void lines.push(JSON.stringify(details) + text);
    const engine = await BubblewrapEngine.open({ stateDirectory, log: { info: note, warn: note } });
    try {
      const sandbox = await engine.create({ limits: SMALL_LIMITS, labels: { evil: EVIL } });
      await shell(sandbox, "true");
      await sandbox.start({ argv: ["true"], tag: EVIL, env: { EVIL } });
      await sandbox.kill("the test");
    } finally {
      await engine.close({ sandboxes: "kill" });
      rmSync(stateDirectory, { recursive: true, force: true });
    }
    for (const line of lines) expect(line).not.toMatch(CONTROL);
  });
});
