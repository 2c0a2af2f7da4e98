/** Commands: started, read by offset, fed, signalled, ended. */
import type { CommandSpec } from "@holdfast/engine";
import { HoldfastError, validateCommandLimits } from "@holdfast/protocol";
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import type { ServerParts } from "../parts.js";
import { commandInfo } from "../sandboxes/postmortem.js";
import type { Attachment } from "../sandboxes/types.js";
import { given } from "./given.js";
import { whileRunning, whyGone } from "./gone.js";
import { bodyOf, commandAddress, expectNothing, queryOf, sandboxId } from "./input.js";
import { beginLines, sendLines } from "./line-stream.js";
import { sendOutput } from "./output-stream.js";
import { acceptRawBodies, bodyChunks } from "./raw-body.js";
import type { OpenStreams } from "./response-stream.js";
import { bodies, queries } from "./schemas.js";
import { until } from "./until.js";
import { callerName } from "./views.js";

function commandSpec(request: FastifyRequest): CommandSpec {
  const spec = bodyOf(request, bodies.command);
  validateCommandLimits(spec.limits ?? {});
  return spec;
}

/** Should it start after all when the sandbox was paused meanwhile, nobody reads it, so nobody may hold it up. */
function startWhileRunning(spec: CommandSpec, at: Parameters<typeof whileRunning>[1]): Promise<Attachment> {
  const starting = at.live.commands.start(spec);
  return whileRunning(starting, at).catch((error: unknown) => {
    starting.then(
      (attachment) => attachment.detach(),
      () => {},
    );
    throw error;
  });
}

export function commandRoutes(parts: ServerParts, streams: OpenStreams): FastifyPluginAsync {
  const { sandboxes, log } = parts;

  /** One round trip: starts the command and answers with its output. */
  async function run(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const spec = commandSpec(request);
    const { caller } = request;
    const live = await sandboxes.openFor(caller, sandboxId(request));
    const stream = streams.prepare(reply, "end");
    const attachment = await startWhileRunning(spec, { sandboxes, caller, live });
    if (stream.closed.aborted) {
      // Nobody has learnt its id: nobody could ever end it.
      attachment.detach();
      await live.commands.cancel(attachment.row.id, "its caller, who left before it started");
    }
    beginLines(stream);
    await sendLines(stream, log, () =>
      sendOutput(stream, {
        sandboxes,
        caller,
        live,
        attachment,
        first: { type: "started", command: commandInfo(attachment.row) },
      }),
    );
  }

  async function output(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { id, command } = commandAddress(request);
    const { stdout, stderr, data, whenReaderIsSlow } = queryOf(request, queries.output);
    const { caller } = request;
    const live = await sandboxes.openFor(caller, id);
    const stream = streams.prepare(reply, "end");
    const attachment = await live.commands.attach(command, {
      from: { stdout, stderr },
      whenReaderIsSlow: data ? whenReaderIsSlow : "drop",
    });
    if (!data) attachment.detach();
    try {
      beginLines(stream);
    } catch (error) {
      attachment.detach();
      throw error;
    }
    await sendLines(stream, log, () => sendOutput(stream, { sandboxes, caller, live, attachment, withData: data }));
  }

  async function writeStdin(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { id, command } = commandAddress(request);
    const { close } = queryOf(request, queries.stdin);
    const { caller } = request;
    const live = await sandboxes.openFor(caller, id);
    const at = { sandboxes, caller, live };
    // Nothing to write is no reason to overlook that there is nothing to write to.
    const row = await live.commands.find({ id: command });
    if (row.ending !== null) throw new HoldfastError("command_not_found", `command ${command} has ended`);
    for await (const chunk of until(bodyChunks(request), [live.gone])) {
      await whileRunning(live.commands.writeInput(command, chunk), at);
    }
    if (live.gone.aborted) throw await whyGone(sandboxes, caller, id);
    if (close) await whileRunning(live.commands.closeInput(command), at);
    return reply.status(204).send();
  }

  async function cancel(request: FastifyRequest) {
    const { id, command } = commandAddress(request);
    const options = given(queryOf(request, queries.cancel));
    const { caller } = request;
    const before = await sandboxes.command(caller, id, command);
    if (before.ending !== null) return before.ending;
    const live = await sandboxes.openFor(caller, id);
    try {
      return await whileRunning(live.commands.cancel(command, callerName(caller), options), {
        sandboxes,
        caller,
        live,
      });
    } catch (error) {
      if (HoldfastError.from(error).code !== "command_not_found") throw error;
      // It may have ended by itself in the meantime.
      const { ending } = await live.commands.find({ id: command });
      if (ending === null) throw error;
      return ending;
    }
  }

  return async (app) => {
    app.post("/sandboxes/:id/run", run);

    app.post("/sandboxes/:id/commands", async (request, reply) => {
      const spec = commandSpec(request);
      const { caller } = request;
      const live = await sandboxes.openFor(caller, sandboxId(request));
      const attachment = await startWhileRunning(spec, { sandboxes, caller, live });
      attachment.detach();
      return reply.status(201).send(commandInfo(attachment.row));
    });

    app.get("/sandboxes/:id/commands", async (request) => {
      expectNothing(request);
      const rows = await sandboxes.commands(request.caller, sandboxId(request));
      return { commands: rows.map(commandInfo) };
    });

    app.get("/sandboxes/:id/commands/:command", async (request) => {
      expectNothing(request);
      const { id, command } = commandAddress(request);
      return commandInfo(await sandboxes.command(request.caller, id, command));
    });

    app.get("/sandboxes/:id/commands/:command/output", { exposeHeadRoute: false }, output);
    app.delete("/sandboxes/:id/commands/:command", cancel);

    app.post("/sandboxes/:id/commands/:command/signal", async (request, reply) => {
      const { id, command } = commandAddress(request);
      const { signal, whole } = bodyOf(request, bodies.signal);
      const { caller } = request;
      const live = await sandboxes.openFor(caller, id);
      await whileRunning(live.commands.signal(command, signal, { whole }), { sandboxes, caller, live });
      return reply.status(204).send();
    });

    app.post("/sandboxes/:id/commands/:command/resize", async (request, reply) => {
      const { id, command } = commandAddress(request);
      const size = bodyOf(request, bodies.resize);
      const { caller } = request;
      const live = await sandboxes.openFor(caller, id);
      await whileRunning(live.commands.resize(command, size), { sandboxes, caller, live });
      return reply.status(204).send();
    });

    await app.register(async (raw) => {
      acceptRawBodies(raw);
      raw.post("/sandboxes/:id/commands/:command/stdin", writeStdin);
    });
  };
}
