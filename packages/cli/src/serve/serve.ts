/** `holdfast serve`: starts the server, says where it is, and lets go of it when told to. */
import { writeFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { HoldfastError } from "@holdfast/protocol";
import { loadConfig, printConfig, type RunningServer, startServer } from "@holdfast/server";
import { coloursFor } from "../text/colours.js";
import { howToCallUs } from "../text/how-to-call-us.js";
import { note } from "../text/notes.js";
import { createServerLog, type ServerLog } from "./create-log.js";
import { fieldsFromFlags, type ServeFlags } from "./serve-flags.js";
import { StopSignals } from "./stop-signals.js";
import { welcomeText } from "./welcome.js";

const OUR_FAILURE = 125;
const OOM_SCORE_ADJ = "-500";

/** Resolves to what the process shall exit with, after the server has stopped. */
export async function serve(flags: ServeFlags): Promise<number> {
  const config = loadConfig({ flags: fieldsFromFlags(flags), env: process.env, file: flags.config });
  if (flags.printConfig === true) {
    process.stdout.write(printConfig(config));
    return 0;
  }
  requireRoot();
  // Chunks of files and output are garbage as soon as they have passed. Left to itself V8 collects the whole heap for every
  // dozen megabytes of them, which halves the speed of a transfer.
  setFlagsFromString("--heap-growing-percent=200");
  const serverLog = createServerLog(config.logLevel);
  const { log } = serverLog;
  lowerOurRisk(log);
  // From the first moment: a signal while it starts stops it as soon as it has.
  const signals = new StopSignals();
  exitOnBug(serverLog);
  try {
    const server = await startServer({ config, log });
    announce(server, flags.json === true);
    await signals.first;
    await stop(server, process.stderr.isTTY ? note : (text) => log.info(text));
    return 0;
  } finally {
    signals.release();
    serverLog.flush();
  }
}

/**
 * When the whole host is out of memory, a command goes (the launcher raises theirs), and we are there to say why. Our heap
 * has a bound of its own, given where Node is started: it cannot be set from here.
 */
function lowerOurRisk(log: ServerLog["log"]): void {
  try {
    writeFileSync("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
  } catch {
    log.info("this process may not lower its own risk of being killed for memory: it lacks CAP_SYS_RESOURCE");
  }
}

function requireRoot(): void {
  if (process.getuid?.() === 0) return;
  throw new HoldfastError(
    "host_unsupported",
    "holdfast serve must run as root: it makes cgroups, mounts and namespaces",
    {
      hint: "Use sudo. What runs in the sandboxes is nobody.",
    },
  );
}

function announce(server: RunningServer, json: boolean): void {
  if (!json) {
    process.stdout.write(`${welcomeText(server, coloursFor(process.stdout), howToCallUs())}\n`);
    return;
  }
  const { url, socketPath, domain, caPath, firstKey: apiKey } = server;
  process.stdout.write(`${JSON.stringify({ url, socketPath, domain, caPath, apiKey, pid: process.pid })}\n`);
}

async function stop(server: RunningServer, say: (text: string) => void): Promise<void> {
  say("stopping; requests may finish. Once more to exit at once");
  const running = await server.sandboxCount();
  await server.close();
  if (running === 0) say("stopped");
  else say(`${running} ${running === 1 ? "sandbox runs" : "sandboxes run"} on; start again to take them over`);
}

/** A bug must not leave a server that half works. Its sandboxes run on, and the next start takes them over. */
function exitOnBug({ log, flush }: ServerLog): void {
  const exit = (reason: unknown): void => {
    log.fatal({ err: reason }, "a bug: the server ends here, its sandboxes run on");
    flush();
    process.exit(OUR_FAILURE);
  };
  process.on("uncaughtException", exit);
  process.on("unhandledRejection", exit);
}
