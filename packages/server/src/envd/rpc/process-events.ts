/** A command's output as a stream of events. The client's reading is what drives it: nothing is read ahead. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { OutputEvent } from "@holdfast/engine";
import type { CommandEnding } from "@holdfast/protocol";
import type { Attachment } from "../../sandboxes/types.js";
import type { ProcessEventSchema } from "../gen/process.js";
import { type Call, isDeadline } from "./call.js";
import { PatientReader } from "./patient-reader.js";
import { endFields } from "./process-end.js";
import { untilAborted } from "./until-aborted.js";

const CHUNK_BYTES = 32 * 1024;
const PTY_CHUNK_BYTES = 16 * 1024;
const PATIENCE_AFTER_DEADLINE_MS = 10_000;

type Event = MessageInitShape<typeof ProcessEventSchema>;

function dataEvent(stream: "stdout" | "stderr" | "pty", bytes: Buffer): Event {
  return { event: { case: "data", value: { output: { case: stream, value: bytes.toString("base64") } } } };
}

function* dataEvents(output: OutputEvent & { kind: "data" }, isPty: boolean): Iterable<Event> {
  const step = isPty ? PTY_CHUNK_BYTES : CHUNK_BYTES;
  for (let at = 0; at < output.bytes.length; at += step) {
    yield dataEvent(isPty ? "pty" : output.stream, output.bytes.subarray(at, at + step));
  }
}

/** The client gave its command that much time and no more: then there is no end event, but the end of the call. */
function timeIsUp(ending: CommandEnding): ConnectError {
  return new ConnectError(ending.message, Code.DeadlineExceeded);
}

/**
 * `deadline: "command"`: the time of the call is the command's, which the guest keeps, and the stream goes on until that is
 * over. `"stream"`: only the stream ends.
 */
export async function* processEvents(
  attachment: Attachment,
  call: Call,
  options: { readonly deadline: "command" | "stream"; readonly keepaliveMs: number },
): AsyncGenerator<Event> {
  const { live } = call;
  const ofCommand = options.deadline === "command";
  const left = ofCommand ? untilClientLeaves(call.signal) : call.signal;
  const { row } = attachment;
  const reader = new PatientReader(attachment.output(), {
    idleMs: options.keepaliveMs,
    stops: [live.gone, left],
    release: () => attachment.detach(),
  });
  let droppedBytes = 0;
  try {
    yield { event: { case: "start", value: { pid: row.pid } } };
    for (;;) {
      const turn = await reader.next();
      if (turn.kind === "stopped") return stop(call);
      if (turn.kind === "end") break;
      if (turn.kind === "idle") {
        yield { event: { case: "keepalive", value: {} } };
        continue;
      }
      if (turn.item.kind === "gap") droppedBytes += turn.item.length;
      else yield* dataEvents(turn.item, row.pty);
      // Unless it was delivered, whoever connects next shall get it. Said at once: a pause may have come in meanwhile.
      if (!(await call.handedOver())) return;
      attachment.delivered(turn.item);
    }
    const ending = await untilAborted(attachment.ended, live.gone, left).catch(() => undefined);
    if (ending === undefined || live.gone.aborted) return stop(call);
    if (ofCommand && ending.cause.kind === "timed_out") throw timeIsUp(ending);
    yield { event: { case: "end", value: endFields(ending, { pid: row.pid, droppedBytes }) } };
  } finally {
    reader.close();
  }
}

function stop(call: Call): void {
  if (call.live.gone.aborted) call.cut();
  else if (isDeadline(call.signal.reason)) throw call.signal.reason;
}

/**
 * Aborted when the client has gone. When the command's time is up the client has still to be told, but its own clock says
 * the same: what it has not taken a while later, it never will.
 */
function untilClientLeaves(signal: AbortSignal): AbortSignal {
  const controller = new AbortController();
  const onAbort = () => {
    if (!isDeadline(signal.reason)) controller.abort(signal.reason);
    else setTimeout(() => controller.abort(signal.reason), PATIENCE_AFTER_DEADLINE_MS).unref();
  };
  if (signal.aborted) onAbort();
  // It lives as long as the call, and so does the listener.
  else signal.addEventListener("abort", onAbort, { once: true });
  return controller.signal;
}
