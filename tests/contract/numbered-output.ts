/** A program that counts without end, and readers that know for every byte which one it must be. */
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { OutputLine } from "@holdfast/protocol";
import type { CommandHandle, Sandbox } from "e2b";
import type { ServerInUse } from "../helpers/use-server.js";

const LINE_BYTES = 10;
/** As many as it takes to tell from any stretch of output where it is from. */
const TELLING_BYTES = 2 * LINE_BYTES;

/** About 2,500 lines a second: what nobody reads for some seconds is far less than a sandbox keeps. */
export const COUNTER = "i=0; while true; do seq -f %09.0f $i $((i + 49)); i=$((i + 50)); sleep 0.02; done";

function expectedAt(position: number, length: number): string {
  const first = Math.floor(position / LINE_BYTES);
  const count = Math.ceil(length / LINE_BYTES) + 1;
  const lines = Array.from({ length: count }, (_, i) => `${String(first + i).padStart(LINE_BYTES - 1, "0")}\n`).join(
    "",
  );
  return lines.slice(position % LINE_BYTES, (position % LINE_BYTES) + length);
}

/** Where the text is from; undefined as long as it is too short to tell. */
function positionOf(text: string): number | undefined {
  if (text.length < TELLING_BYTES) return undefined;
  const end = text.indexOf("\n") + 1;
  return Number(text.slice(end, end + LINE_BYTES - 1)) * LINE_BYTES - end;
}

/** What all readers of one command have got, one after the other. */
class Account {
  position = 0;
  problem: string | undefined;

  accept(at: number, text: string): void {
    if (this.problem !== undefined) return;
    if (at > this.position) this.problem = `bytes ${this.position} to ${at} are missing`;
    else if (text !== expectedAt(at, text.length))
      this.problem = `wrong bytes at ${at}: ${JSON.stringify(text.slice(0, 60))}`;
    this.position = Math.max(this.position, at + text.length);
  }
}

/** Reads through E2B's calls, which know no offsets: `Connect` goes on by itself. */
export class ConnectReader {
  readonly #sandbox: Sandbox;
  readonly #account = new Account();
  #command: CommandHandle | undefined;
  #at: number | undefined;
  #pending = "";
  /** What came twice, because the server could not know that it had arrived. */
  repeatedBytes = 0;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  get pid(): number {
    return this.#command?.pid ?? 0;
  }
  get position(): number {
    return this.#account.position;
  }
  get problem(): string | undefined {
    return this.#account.problem;
  }

  async start(): Promise<void> {
    this.#at = 0;
    this.#hold(await this.#sandbox.commands.run(COUNTER, { background: true, timeoutMs: 0, onStdout: this.#take }));
  }

  async connectAgain(): Promise<void> {
    this.#at = undefined;
    this.#pending = "";
    this.#hold(await this.#sandbox.commands.connect(this.pid, { timeoutMs: 0, onStdout: this.#take }));
  }

  #hold(command: CommandHandle): void {
    this.#command = command;
    // It is cut off again and again; only what arrives counts.
    void command.wait().catch(() => {});
  }

  #take = (text: string): void => {
    if (this.#at === undefined) {
      this.#pending += text;
      this.#at = positionOf(this.#pending);
      if (this.#at === undefined) return;
      this.repeatedBytes += Math.max(0, this.#account.position - this.#at);
      this.#accept(this.#pending);
    } else this.#accept(text);
  };

  #accept(text: string): void {
    const at = this.#at ?? 0;
    this.#account.accept(at, text);
    this.#at = at + text.length;
  }
}

/** Reads through our own API, from the offset where it was cut off: nothing comes twice. */
export class OffsetReader {
  readonly #server: ServerInUse;
  readonly #sandboxId: string;
  readonly #account = new Account();
  #commandId = 0;

  constructor(server: ServerInUse, sandboxId: string) {
    this.#server = server;
    this.#sandboxId = sandboxId;
  }

  get position(): number {
    return this.#account.position;
  }
  get problem(): string | undefined {
    return this.#account.problem;
  }

  async start(): Promise<void> {
    const { status, body } = await this.#server.call<{ id: number }>(
      "POST",
      `/v1/sandboxes/${this.#sandboxId}/commands`,
      { argv: ["bash", "-c", COUNTER] },
    );
    if (status !== 201) throw new Error(`the command did not start: ${JSON.stringify(body)}`);
    this.#commandId = body.id;
    await this.connectAgain();
  }

  async connectAgain(): Promise<void> {
    const from = this.#account.position;
    const response = await fetch(
      `${this.#server.url}/v1/sandboxes/${this.#sandboxId}/commands/${this.#commandId}/output?stdout=${from}&stderr=0`,
      { headers: { "X-API-Key": this.#server.apiKey } },
    );
    if (!response.ok || response.body === null)
      throw new Error(`no output: ${response.status} ${await response.text()}`);
    // It is cut off again and again; only what arrives counts.
    this.#read(Readable.fromWeb(response.body as import("node:stream/web").ReadableStream)).catch(() => {});
  }

  async #read(body: Readable): Promise<void> {
    for await (const text of createInterface({ input: body })) {
      // Cut off in the middle of a line, this throws, and that line is not taken.
      const line = JSON.parse(text) as OutputLine;
      if (line.type === "gap") this.#account.problem ??= `${line.length} bytes at ${line.offset} were dropped`;
      if (line.type !== "data") continue;
      if (line.offset !== this.#account.position) {
        this.#account.problem ??= `bytes from ${line.offset} came, after ${this.#account.position}`;
      }
      this.#account.accept(line.offset, Buffer.from(line.base64, "base64").toString());
    }
  }
}
