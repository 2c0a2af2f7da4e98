/**
 * A command as the guest shows it: started, output with offsets, exit. No opinion yet about *why* it ended; that is
 * attribution's, which also asks the kernel.
 */
import { Writable } from "node:stream";
import { type CommandLimits, HoldfastError } from "@holdfast/protocol";
import {
  CHANNEL,
  EXIT_KIND,
  FIELD,
  type FieldList,
  type Fields,
  FRAME,
  NOTE,
  ProtocolError,
} from "@holdfast/protocol/guest";
import type { OutputEvent } from "../engine.js";
import type { GuestConnection, GuestStream } from "./connection.js";
import { CreditQueue } from "./credit-queue.js";

/** How much of a command's output may wait on our side, a channel. Enough to keep the guest busy while we read. */
const OUTPUT_WINDOW_BYTES = 256 * 1024;
/** Credit goes back in steps of this size: a frame for each chunk would double the traffic of small ones. */
const GRANT_STEP_BYTES = OUTPUT_WINDOW_BYTES / 4;
const MAX_UNREAD_GAPS = 1024;
const STDIN_BUFFER_BYTES = 64 * 1024;

export interface GuestExit {
  readonly code: number | undefined;
  readonly signal: number | undefined;
  readonly timedOut: boolean;
  readonly outputHeld: boolean;
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly maxRssBytes: number;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
}

export function exitFromFields(fields: Fields): GuestExit {
  const kind = fields.number(FIELD.EXIT_KIND);
  const code = fields.number(FIELD.EXIT_CODE);
  const signal = fields.number(FIELD.SIGNAL);
  if (kind !== EXIT_KIND.EXITED && kind !== EXIT_KIND.SIGNALED) throw new ProtocolError("an exit of no known kind");
  if (kind === EXIT_KIND.EXITED ? code === undefined || code > 255 : signal === undefined || signal > 64) {
    throw new ProtocolError("the guest reported an exit that cannot be");
  }
  return {
    code: kind === EXIT_KIND.EXITED ? code : undefined,
    signal: kind === EXIT_KIND.SIGNALED ? signal : undefined,
    timedOut: fields.number(FIELD.TIMED_OUT) === 1,
    outputHeld: fields.number(FIELD.HELD) === 1,
    wallMs: (fields.number(FIELD.WALL_US) ?? 0) / 1000,
    cpuMs: ((fields.number(FIELD.USER_US) ?? 0) + (fields.number(FIELD.SYS_US) ?? 0)) / 1000,
    maxRssBytes: fields.number(FIELD.MAXRSS_BYTES) ?? 0,
    stdoutBytes: fields.number(FIELD.OUT_BYTES) ?? 0,
    stderrBytes: fields.number(FIELD.ERR_BYTES) ?? 0,
  };
}

const streamName = (channel: number): "stdout" | "stderr" => (channel === CHANNEL.err ? "stderr" : "stdout");

export class CommandStream {
  readonly output: CreditQueue<OutputEvent>;
  /** The pid inside, once it runs; rejects if it could not be started. */
  readonly started: Promise<number>;
  /** The exit as the guest saw it, or the reason why we shall never know. Never rejects. */
  readonly exited: Promise<GuestExit | HoldfastError>;
  readonly stdin: Writable;
  /** What it was started with, by the guest's memory; known once `started` has resolved. */
  limits: CommandLimits = {};
  /** Whether it reads from stdin; known once `started` has resolved. */
  takesInput = false;

  readonly #connection: GuestConnection;
  readonly #commandId: number;
  readonly #stream: GuestStream;
  /** After `detach`: a second attachment without output, for everything else. */
  #control: GuestStream | undefined;
  #hasStarted = false;
  #hasExited = false;
  #gaps = 0;
  readonly #offsets: [number, number, number] = [0, 0, 0];
  readonly #owed: [number, number, number] = [0, 0, 0];
  #settleStarted!: { resolve: (pid: number) => void; reject: (reason: HoldfastError) => void };
  #settleExited!: (exit: GuestExit | HoldfastError) => void;

  constructor(
    connection: GuestConnection,
    commandId: number,
    type: typeof FRAME.START | typeof FRAME.ATTACH,
    fields: FieldList,
    from: { readonly stdout: number; readonly stderr: number } = { stdout: 0, stderr: 0 },
  ) {
    this.#connection = connection;
    this.#commandId = commandId;
    this.#offsets[CHANNEL.out] = from.stdout;
    this.#offsets[CHANNEL.err] = from.stderr;
    this.output = new CreditQueue<OutputEvent>(
      (event, cost) => this.#payBack(event, cost),
      () => this.detach(),
    );
    this.started = new Promise((resolve, reject) => {
      this.#settleStarted = { resolve, reject };
    });
    this.exited = new Promise((resolve) => {
      this.#settleExited = resolve;
    });
    this.stdin = this.#createStdin();
    this.#stream = connection.openStream(
      type,
      fields,
      {
        onNote: (note) => this.#onNote(note),
        onData: (channel, bytes) => this.#onData(channel, bytes),
        onEnd: (result) => this.#onEnd(result),
      },
      { window: OUTPUT_WINDOW_BYTES },
    );
  }

  /** Lets go of the output. The command runs on, takes input, and how it ends is still told. */
  detach(): void {
    if (this.#control !== undefined || this.#stream.ended) return;
    // A reader without credit that asks for nothing to wait: it holds up nobody, and hears of the exit.
    this.#control = this.#connection.openStream(FRAME.ATTACH, [[FIELD.COMMAND_ID, this.#commandId]], {
      onNote: (note) => {
        if (note.number(FIELD.NOTE_KIND) !== NOTE.EXITED) return;
        this.#settleExited(exitFromFields(note));
        // Output that nobody reads would keep it open for as long as the guest remembers the command.
        this.#control?.reset();
      },
      onEnd: (result) => {
        if (result instanceof HoldfastError) this.#settleExited(result);
      },
    });
    // Last, because it wakes whoever waits to send: the rest goes through the second attachment.
    this.#stream.reset();
  }

  /** Lets go of the output and of everything else: somebody else listens for the exit. */
  release(): void {
    if (this.#control === undefined) this.#stream.reset();
  }

  #onNote(note: Fields): void {
    switch (note.number(FIELD.NOTE_KIND)) {
      case NOTE.STARTED: {
        const pid = note.number(FIELD.PID);
        if (pid === undefined || pid < 2 || pid > 0x7fffffff)
          throw new ProtocolError("the guest reported a pid that cannot be");
        this.limits = {
          wallMs: note.number(FIELD.TIMEOUT_MS),
          memoryBytes: note.number(FIELD.MEMORY_BYTES),
          pids: note.number(FIELD.PIDS),
        };
        this.takesInput = note.number(FIELD.STDIN) === 1;
        if (this.#hasStarted) throw new ProtocolError("the guest started a command twice");
        this.#hasStarted = true;
        this.#settleStarted.resolve(pid);
        return;
      }
      case NOTE.EXITED:
        if (this.#hasExited) throw new ProtocolError("the guest ended a command twice");
        this.#hasExited = true;
        this.#settleExited(exitFromFields(note));
        return;
      case NOTE.GAP: {
        const channel = note.number(FIELD.CHANNEL);
        const offset = note.number(FIELD.OFFSET);
        const length = note.number(FIELD.LENGTH);
        if (
          (channel !== CHANNEL.out && channel !== CHANNEL.err) ||
          offset !== this.#offsets[channel] ||
          length === undefined
        ) {
          throw new ProtocolError("the guest reported a gap that cannot be");
        }
        // Between two gaps lie bytes that were paid for; more of them than this are no honest answer.
        if (length === 0 || this.#gaps >= MAX_UNREAD_GAPS)
          throw new ProtocolError("the guest reports gaps without end");
        this.#gaps += 1;
        this.#offsets[channel] = offset + length;
        this.output.push({ kind: "gap", stream: streamName(channel), offset, length }, 0);
        return;
      }
      default:
        throw new ProtocolError("the guest sent a note that does not belong to a command");
    }
  }

  #onData(channel: number, bytes: Buffer): void {
    if (channel !== CHANNEL.out && channel !== CHANNEL.err) throw new ProtocolError(`output on channel ${channel}`);
    const offset = this.#offsets[channel];
    this.#offsets[channel] = offset + bytes.length;
    this.output.push({ kind: "data", stream: streamName(channel), offset, bytes }, bytes.length);
  }

  #payBack(event: OutputEvent, cost: number): void {
    if (event.kind === "gap") this.#gaps -= 1;
    const channel = event.stream === "stderr" ? CHANNEL.err : CHANNEL.out;
    this.#owed[channel] += cost;
    if (this.#owed[channel] >= GRANT_STEP_BYTES) {
      this.#stream.grant(channel, this.#owed[channel]);
      this.#owed[channel] = 0;
    }
  }

  #onEnd(result: Fields | HoldfastError): void {
    if (result instanceof HoldfastError) {
      this.#settleStarted.reject(result);
      if (this.#control === undefined || result.code !== "canceled") this.#settleExited(result);
      // Whoever only waits for the exit need not also handle a start that was never awaited.
      this.started.catch(() => {});
    } else if (this.#control === undefined) {
      this.#settleStarted.reject(new HoldfastError("guest_fault", "the guest ended the command before it started it"));
      this.started.catch(() => {});
      this.#settleExited(new HoldfastError("guest_fault", "the guest ended the command without saying how"));
    }
    this.output.finish();
  }

  #createStdin(): Writable {
    return new Writable({
      highWaterMark: STDIN_BUFFER_BYTES,
      write: (chunk: Buffer, _encoding, callback) => {
        this.#sendInput(chunk).then(() => callback(), callback);
      },
      final: (callback) => {
        (this.#control ?? this.#stream).sendEof(CHANNEL.in);
        callback();
      },
    });
  }

  async #sendInput(chunk: Buffer): Promise<void> {
    if (this.#control === undefined) {
      const sent = await this.#stream.send(chunk);
      if (sent === chunk.length) return;
      chunk = chunk.subarray(sent);
    }
    // Undefined if the command has ended: nobody is left to read the rest.
    await this.#control?.send(chunk);
  }
}
