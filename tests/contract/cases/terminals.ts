import { expect } from "vitest";
import { type Cases, failure } from "../cell.js";

const encoder = new TextEncoder();

function collector() {
  const decoder = new TextDecoder();
  const seen = {
    text: "",
    onData(data: Uint8Array) {
      seen.text += decoder.decode(data, { stream: true });
    },
  };
  return seen;
}

export const terminalCases: Cases = {
  "a terminal has a size, an environment and a shell that answers": async ({ sandbox }) => {
    const seen = collector();
    const terminal = await sandbox.pty.create({
      cols: 97,
      rows: 31,
      onData: seen.onData,
      envs: { MINE: "own" },
      cwd: "/tmp",
      timeoutMs: 0,
    });
    const type = (text: string) => sandbox.pty.sendInput(terminal.pid, encoder.encode(text));
    await type('echo "[$(stty size) $TERM $LANG $MINE $(pwd) $(whoami)]"\n');
    await expect.poll(() => seen.text, { timeout: 10_000 }).toContain("[31 97 xterm-256color C.UTF-8 own /tmp user]");

    await sandbox.pty.resize(terminal.pid, { cols: 120, rows: 40 });
    await type('echo "[$(stty size) $(tput cols)]"\n');
    await expect.poll(() => seen.text, { timeout: 10_000 }).toContain("[40 120 120]");

    await type("exit 7\n");
    expect(await failure(terminal.wait())).toMatchObject({ exitCode: 7 });
  },

  "a terminal passes control characters on": async ({ sandbox }) => {
    const seen = collector();
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: seen.onData });
    await sandbox.pty.sendInput(terminal.pid, encoder.encode("echo begin; sleep 1000; echo not this\n"));
    await expect.poll(() => seen.text, { timeout: 10_000 }).toContain("begin\r\n");
    await sandbox.pty.sendInput(terminal.pid, encoder.encode("\x03"));
    await sandbox.pty.sendInput(terminal.pid, encoder.encode('echo "after €: $?"\n'));
    await expect.poll(() => seen.text, { timeout: 10_000 }).toContain("after €: 130");
    expect(await sandbox.pty.kill(terminal.pid)).toBe(true);
    expect(await failure(terminal.wait())).toMatchObject({ exitCode: -1 });
    expect(await sandbox.pty.kill(terminal.pid)).toBe(false);
  },

  "a terminal outlives its client and takes another": async ({ sandbox, otherClient }) => {
    const first = collector();
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: first.onData, user: "root" });
    await sandbox.pty.sendInput(terminal.pid, encoder.encode("KEPT=yes; echo set $KEPT\n"));
    await expect.poll(() => first.text, { timeout: 10_000 }).toContain("set yes");
    await terminal.disconnect();
    const elsewhere = await otherClient.Sandbox.connect(sandbox.sandboxId);
    const second = collector();
    const again = await elsewhere.pty.connect(terminal.pid, { onData: second.onData });
    await elsewhere.pty.sendInput(terminal.pid, encoder.encode('echo "still $KEPT, $(whoami)"\n'));
    await expect.poll(() => second.text, { timeout: 10_000 }).toContain("still yes, root");
    expect(await again.kill()).toBe(true);
  },
};
