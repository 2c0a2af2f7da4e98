#!/usr/bin/env node
// Runs the engine's tests in a virtual machine with pure cgroup v2.
// See README.md beside this file, or --help.
import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import fs from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { cacheDirectory, cpio, ensureImages, ownDirectory, PACK, sweep } from "./image.mjs";
import { ended, run, say, start, stopChildren, stopReason } from "./process.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

const USAGE = `Usage: node scripts/vm/run.mjs [options] [vitest arguments…]

Boots Debian's cloud kernel in QEMU (software emulation) with pure cgroup v2 and
runs there: node node_modules/vitest/vitest.mjs run --project engine [arguments…]
Exits with its status.

  --shell-command CMD   run CMD with bash in the checkout instead of vitest
  --timeout SECONDS     hard limit of the machine's life (default 1200)
  --memory MIB          memory of the machine (default 3072)
  --cpus N              virtual processors (default 2)
  --repo DIR            checkout to run (default: the one of this script)
  --env NAME=VALUE      set a variable for the command (repeatable)
  --console             show the kernel console too (on stderr)
  --rebuild             make the cached root file system anew
  --                    all that follows goes to vitest

Environment: HOLDFAST_VM_CACHE (cache directory; default
$XDG_CACHE_HOME/holdfast/vm), HOLDFAST_VM_MIRROR (Debian mirror), TMPDIR.
`;

const EXCLUDED = [".git", ".cache", "coverage", "node_modules/.cache", "node_modules/.vite", "node_modules/.vitest"];
const CONSOLE_TAIL = 40;
const LOGS_KEPT = 10;
const SOCKET_PATH_LIMIT = 100;

/** A mistake of the caller. */
class UsageError extends Error {}

function parseArguments(argv) {
  const options = {
    timeout: 1200,
    memory: 3072,
    cpus: 2,
    repo: path.resolve(here, "../.."),
    env: {},
    console: false,
    rebuild: false,
    shell: null,
    vitest: [],
  };
  const number = (name, text) => {
    const value = Number(text);
    if (!Number.isFinite(value) || value <= 0) throw new UsageError(`${name} needs a positive number`);
    return value;
  };
  const takesValue = {
    "--shell-command": (v) => {
      options.shell = v;
    },
    "--timeout": (v) => {
      options.timeout = number("--timeout", v);
    },
    "--memory": (v) => {
      options.memory = Math.round(number("--memory", v));
    },
    "--cpus": (v) => {
      options.cpus = Math.round(number("--cpus", v));
    },
    "--repo": (v) => {
      options.repo = path.resolve(v);
    },
    "--env": (v) => {
      const match = /^([A-Za-z_]\w*)=(.*)$/s.exec(v);
      if (!match) throw new UsageError("--env needs NAME=VALUE");
      options.env[match[1]] = match[2];
    },
  };
  const rest = [...argv];
  while (rest.length > 0) {
    const argument = rest.shift();
    const equals = argument.startsWith("--") ? argument.indexOf("=") : -1;
    const name = equals < 0 ? argument : argument.slice(0, equals);
    if (argument === "--") {
      options.vitest.push(...rest.splice(0));
    } else if (Object.hasOwn(takesValue, name)) {
      if (equals < 0 && rest.length === 0) throw new UsageError(`${name} needs a value`);
      takesValue[name](equals < 0 ? rest.shift() : argument.slice(equals + 1));
    } else if (argument === "--console") {
      options.console = true;
    } else if (argument === "--rebuild") {
      options.rebuild = true;
    } else if (argument === "--help" || argument === "-h") {
      options.help = true;
    } else {
      options.vitest.push(argument);
    }
  }
  if (options.shell !== null && options.vitest.length > 0) {
    throw new UsageError(`--shell-command takes no vitest arguments: ${options.vitest.join(" ")}`);
  }
  return options;
}

function quote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The script that the machine runs in the checkout. */
function jobScript(options) {
  const colour = process.stdout.isTTY && !process.env.NO_COLOR ? { FORCE_COLOR: "1" } : { NO_COLOR: "1" };
  const env = { HOME: "/root", CI: "true", HOLDFAST_VM: "cgroup2", ...colour, ...options.env };
  const lines = Object.entries(env).map(([name, value]) => `export ${name}=${quote(value)}`);
  if (options.shell !== null) {
    lines.push(`exec /bin/bash -c ${quote(options.shell)}`);
  } else {
    const given = (flag) => options.vitest.some((a) => a === flag || a.startsWith(`${flag}=`));
    const command = ["node", "node_modules/vitest/vitest.mjs", "run"];
    if (!given("--project")) command.push("--project", "engine");
    if (!given("--reporter")) command.push("--reporter=default");
    // The counts of the last line come from here.
    command.push("--reporter=json", "--outputFile.json=/run/holdfast/results.json", ...options.vitest);
    lines.push(`exec ${command.map(quote).join(" ")}`);
  }
  return `${lines.join("\n")}\n`;
}

async function writeInitramfs(target, base, options) {
  const own = cpio([
    { name: "init", data: await fs.readFile(path.join(here, "guest/stage1.sh")) },
    { name: "stage2.sh", data: await fs.readFile(path.join(here, "guest/stage2.sh")) },
    { name: "job.sh", data: Buffer.from(jobScript(options)) },
  ]);
  // The kernel unpacks archives that follow one another.
  await fs.writeFile(target, Buffer.concat([await fs.readFile(base), own]));
}

/** Listens on a Unix socket for the one connection of QEMU; data goes to `sink`. */
async function listen(file, sink) {
  let done;
  const finished = new Promise((resolve) => (done = resolve));
  const server = net.createServer((socket) => {
    server.close();
    socket.on("data", sink);
    socket.on("error", () => {});
    socket.on("close", done);
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(file, resolve);
  });
  return {
    finished,
    close: () => {
      server.close();
      done();
    },
  };
}

/** What the guest says on its control port, see guest/stage2.sh. */
function controlReader(report, onLine) {
  let text = "";
  return (chunk) => {
    text += chunk.toString("latin1");
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      const space = line.indexOf(" ");
      const word = line.slice(0, space);
      const value = line.slice(space + 1);
      if (word === "exit") report.exit = Number(value);
      else if (word === "results") report.results = parseResults(value);
      else if (word === "kernel" || word === "fatal" || word === "ready") report[word] = value;
      onLine(word, value);
    }
  };
}

function parseResults(base64) {
  try {
    return JSON.parse(Buffer.from(base64, "base64").toString("utf8"));
  } catch {
    return null;
  }
}

function qemuArguments(options, images, runDir, ports) {
  const kernelArguments = [
    "console=ttyS0",
    "panic=-1",
    "oops=panic",
    "loglevel=5",
    "cgroup_no_v1=all",
    // Emulated hardware: nothing to mitigate, and no time to lose at boot.
    "mitigations=off",
    "nokaslr",
    "no_timer_check",
    "nowatchdog",
    "audit=0",
    "apparmor=0",
    "random.trust_cpu=on",
  ];
  const args = [
    "-nodefaults",
    "-no-user-config",
    "-nographic",
    "-no-reboot",
    "-nic",
    "none",
    "-machine",
    "q35,usb=off,vmport=off",
    "-accel",
    "tcg,thread=multi,tb-size=1024",
    "-cpu",
    "max,la57=off",
    "-smp",
    String(options.cpus),
    "-m",
    String(options.memory),
    "-rtc",
    "base=utc",
    "-kernel",
    images.kernel,
    "-initrd",
    path.join(runDir, "initramfs"),
    "-append",
    kernelArguments.join(" "),
    "-chardev",
    "stdio,id=console,signal=off",
    "-serial",
    "chardev:console",
  ];
  const disk = (id, settings) => {
    const text = Object.entries({ id, if: "none", format: "raw", ...settings })
      .map(([name, value]) => `${name}=${String(value).replaceAll(",", ",,")}`)
      .join(",");
    args.push("-drive", text, "-device", `virtio-blk-pci,drive=${id}`);
  };
  // Writes go to a temporary file in TMPDIR, which is our run directory.
  disk("root", { file: images.disk, snapshot: "on", cache: "unsafe" });
  disk("repo", { file: path.join(runDir, "repo.squashfs"), readonly: "on" });
  disk("node", { file: images.node, readonly: "on" });
  args.push("-device", "virtio-serial-pci");
  for (const [name, file] of Object.entries(ports)) {
    args.push(
      "-chardev",
      `socket,id=${name},path=${file.replaceAll(",", ",,")}`,
      "-device",
      `virtserialport,chardev=${name},name=holdfast.${name}`,
    );
  }
  return args;
}

async function bootAndRun(options, images, runDir, report) {
  const mark = Date.now();
  await writeInitramfs(path.join(runDir, "initramfs"), images.initramfs, options);
  await run("mksquashfs", [options.repo, path.join(runDir, "repo.squashfs"), ...PACK, "-e", ...EXCLUDED]);
  const packed = Date.now();

  const ports = {
    out: path.join(runDir, "out.sock"),
    err: path.join(runDir, "err.sock"),
    ctl: path.join(runDir, "ctl.sock"),
  };
  let booted;
  const onLine = (word) => {
    if (word !== "ready") return;
    booted = Date.now();
    const seconds = (a, b) => ((b - a) / 1000).toFixed(1);
    say(
      `Linux ${report.kernel}, pure cgroup v2, ready: checkout packed in ${seconds(mark, packed)} s, booted in ${seconds(packed, booted)} s`,
    );
  };
  const channels = [
    await listen(ports.out, (chunk) => process.stdout.write(chunk)),
    await listen(ports.err, (chunk) => process.stderr.write(chunk)),
    await listen(ports.ctl, controlReader(report, onLine)),
  ];

  const log = createWriteStream(path.join(runDir, "console.log"));
  const qemu = start(
    "setpriv",
    ["--pdeathsig", "KILL", "qemu-system-x86_64", ...qemuArguments(options, images, runDir, ports)],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, TMPDIR: runDir } },
  );
  for (const stream of [qemu.stdout, qemu.stderr]) {
    stream.on("data", (chunk) => {
      log.write(chunk);
      if (options.console) process.stderr.write(chunk);
    });
  }
  const timer = setTimeout(() => {
    report.timedOut = true;
    stopChildren(`the machine did not finish within ${options.timeout} s`, 0);
  }, options.timeout * 1000);
  const { code, signal } = await ended(qemu);
  clearTimeout(timer);
  report.qemu = signal ?? code;
  if (booted) report.seconds = (Date.now() - booted) / 1000;
  // A channel that QEMU never opened will not close by itself.
  setTimeout(() => {
    for (const channel of channels) channel.close();
  }, 1000).unref();
  await Promise.all(channels.map((channel) => channel.finished));
  await new Promise((resolve) => log.end(resolve));
}

/** Keeps the console log of a failed run and shows its end. */
async function keepConsole(runDir) {
  const log = await fs.readFile(path.join(runDir, "console.log"), "latin1").catch(() => "");
  if (log === "") return;
  const kept = path.join(
    cacheDirectory(),
    "logs",
    `console-${new Date().toISOString().replace(/[:.]/g, "-")}-${randomBytes(2).toString("hex")}.log`,
  );
  await fs.mkdir(path.dirname(kept), { recursive: true });
  await fs.writeFile(kept, log, "latin1");
  const older = (await fs.readdir(path.dirname(kept))).sort().slice(0, -LOGS_KEPT);
  await Promise.all(older.map((name) => fs.rm(path.join(path.dirname(kept), name), { force: true })));
  // Without terminal control sequences of the firmware.
  const clean = stripVTControlCharacters(log).replaceAll("\r", "");
  const tail = clean.trimEnd().split("\n").slice(-CONSOLE_TAIL);
  say(`the kernel console ended with (whole: ${kept}):`);
  process.stderr.write(tail.map((line) => `    ${line}\n`).join(""));
}

function summary({ results, seconds, kernel }) {
  const passed = results.numPassedTests;
  const failed = results.numFailedTests;
  const skipped = (results.numPendingTests ?? 0) + (results.numTodoTests ?? 0);
  const broken = (results.testResults ?? []).filter(
    (file) => file.status === "failed" && file.assertionResults.length === 0,
  ).length;
  return (
    `cgroup2: ${passed} passed, ${failed} failed` +
    (skipped > 0 ? `, ${skipped} skipped` : "") +
    (broken > 0 ? `, ${broken} test files did not load` : "") +
    ` (Linux ${kernel}, pure cgroup v2, ${Math.round(seconds)} s)`
  );
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  if (options.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  await fs.access(path.join(options.repo, "package.json")).catch((error) => {
    if (options.shell === null) throw new UsageError(`no checkout at ${options.repo}: ${error.message}`);
  });

  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      process.exitCode = 128 + os.constants.signals[signal];
      stopChildren(`stopped by ${signal}`);
    });
  }

  process.stdout.on("error", () => {
    process.exitCode = 128 + os.constants.signals.SIGPIPE;
    stopChildren("standard output was closed");
  });

  const images = await ensureImages(options);
  let parent = os.tmpdir();
  if (Buffer.byteLength(parent) + 60 > SOCKET_PATH_LIMIT) parent = "/tmp"; // Unix sockets have short paths
  await sweep(parent, "holdfast-vm");
  const runDir = await ownDirectory(parent, "holdfast-vm");
  const report = {};
  try {
    await bootAndRun(options, images, runDir, report);
    if (report.exit === undefined) {
      if (report.timedOut || !stopReason()) await keepConsole(runDir);
      throw new Error(stopReason() ?? report.fatal ?? `the machine ended without a result (QEMU: ${report.qemu})`);
    }
    if (report.exit !== 0 && options.shell === null) await keepConsole(runDir);
    if (report.results) {
      process.stdout.write(`${summary(report)}\n`);
      if (report.exit === 0 && report.results.numPassedTests === 0) {
        say("no test ran: that proves nothing");
        return 1;
      }
    }
    return report.exit;
  } finally {
    await fs.rm(runDir, { recursive: true, force: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  say(error instanceof UsageError ? `${error.message} (see --help)` : error.message);
  // A signal has set the status already; 70 is a failure of the harness itself.
  process.exitCode ||= stopReason() ? 124 : error instanceof UsageError ? 64 : 70;
}
