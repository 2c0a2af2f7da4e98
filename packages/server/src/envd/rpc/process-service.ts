/** process.Process: the commands of a sandbox. */
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { LiveSandbox } from "../../sandboxes/types.js";
import type { CommandRow } from "../../store/store.js";
import {
  type Process,
  type ProcessInput,
  type ProcessSelector,
  Signal,
  type StreamInputRequest,
} from "../gen/process.js";
import { Call } from "./call.js";
import { CommandInput } from "./command-input.js";
import { commandSpecFrom, terminalSize } from "./command-spec.js";
import { processEvents } from "./process-events.js";
import { ResponseBudget } from "./response-budget.js";

function refuse(message: string): ConnectError {
  return new ConnectError(message, Code.FailedPrecondition);
}

function notFound(selector: ProcessSelector["selector"]): ConnectError {
  return new ConnectError(`process with ${selector.case} ${selector.value} not found`, Code.NotFound);
}

async function findCommand(live: LiveSandbox, process: ProcessSelector | undefined): Promise<CommandRow> {
  const selector = process?.selector ?? { case: undefined };
  if (selector.case === undefined) throw invalidArgument("process", "neither", "a pid or a tag");
  try {
    return await live.commands.find(selector.case === "pid" ? { pid: selector.value } : { tag: selector.value });
  } catch (error) {
    if (HoldfastError.from(error).code === "command_not_found") throw notFound(selector);
    throw error;
  }
}

async function findRunning(live: LiveSandbox, process: ProcessSelector | undefined): Promise<CommandRow> {
  const row = await findCommand(live, process);
  if (row.endedAt !== null) throw notFound(process?.selector ?? { case: undefined });
  return row;
}

function signalFrom(signal: Signal): "SIGTERM" | "SIGKILL" {
  if (signal === Signal.SIGTERM) return "SIGTERM";
  if (signal === Signal.SIGKILL) return "SIGKILL";
  throw invalidArgument("signal", signal, "SIGNAL_SIGTERM or SIGNAL_SIGKILL");
}

/** A terminal has one way in, a pipe another; a client that mixes them up would write into the wrong program. */
function inputFor(row: CommandRow, input: ProcessInput | undefined): Uint8Array {
  const given = input?.input ?? { case: undefined };
  if (given.case === undefined) throw invalidArgument("input", "neither", "stdin or pty");
  if (given.case === "stdin" && row.pty) throw refuse(`process ${row.pid} has a terminal: send the input as pty`);
  if (given.case === "pty" && !row.pty) throw refuse(`process ${row.pid} has no terminal: send the input as stdin`);
  return given.value;
}

async function takeStream(requests: AsyncIterable<StreamInputRequest>, call: Call, input: CommandInput): Promise<void> {
  let row: CommandRow | undefined;
  for await (const { event } of requests) {
    switch (event.case) {
      case "start":
        if (row !== undefined) throw invalidArgument("start", "a second one", "one start, in the first message");
        row = await findRunning(call.live, event.value.process);
        break;
      case "data":
        if (row === undefined) throw invalidArgument("data", "data", "a start in the first message");
        await input.write(call.live, row.id, inputFor(row, event.value.input));
        break;
      case "keepalive":
        break;
      case undefined:
        throw invalidArgument("event", "nothing", "start, data or keepalive");
    }
  }
}

export function createProcessService(): ServiceImpl<typeof Process> {
  const input = new CommandInput();
  return {
    async list(_request, context) {
      const { live } = new Call(context);
      const budget = new ResponseBudget("the list of commands", "Look at them one by one, by pid or by tag.");
      const rows = await live.commands.running();
      const processes = rows.map((row) => {
        const [cmd = "", ...args] = row.argv;
        budget.spend(cmd, ...args, ...Object.keys(row.env), ...Object.values(row.env));
        return {
          config: { cmd, args, envs: { ...row.env }, ...(row.cwd === null ? {} : { cwd: row.cwd }) },
          pid: row.pid,
          ...(row.tag === null ? {} : { tag: row.tag }),
        };
      });
      return { processes };
    },

    async *start(request, context) {
      const call = new Call(context);
      const { keepaliveMs } = call;
      const spec = await commandSpecFrom(request, call);
      const attachment = await call.live.commands.start(spec);
      for await (const event of processEvents(attachment, call, { deadline: "command", keepaliveMs })) yield { event };
    },

    async *connect(request, context) {
      const call = new Call(context);
      const { keepaliveMs } = call;
      const row = await findCommand(call.live, request.process);
      const attachment = await call.live.commands.attach(row.id, { whenReaderIsSlow: "block" });
      for await (const event of processEvents(attachment, call, { deadline: "stream", keepaliveMs })) yield { event };
    },

    async update(request, context) {
      const { live } = new Call(context);
      const row = await findRunning(live, request.process);
      if (request.pty === undefined) return {};
      if (!row.pty) throw refuse(`process ${row.pid} has no terminal to resize`);
      await live.commands.resize(row.id, terminalSize(request.pty));
      return {};
    },

    async sendInput(request, context) {
      const { live } = new Call(context);
      const row = await findRunning(live, request.process);
      await input.write(live, row.id, inputFor(row, request.input));
      return {};
    },

    async streamInput(requests, context) {
      await takeStream(requests, new Call(context), input);
      return {};
    },

    async closeStdin(request, context) {
      const { live } = new Call(context);
      const row = await findRunning(live, request.process);
      if (row.pty) throw refuse(`process ${row.pid} has a terminal: send Ctrl+D (0x04) instead of closing stdin`);
      await live.commands.closeInput(row.id);
      return {};
    },

    async sendSignal(request, context) {
      const { live } = new Call(context);
      const signal = signalFrom(request.signal);
      const row = await findRunning(live, request.process);
      await live.commands.signal(row.id, signal);
      return {};
    },
  };
}
