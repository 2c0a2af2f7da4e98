/** The file operations, as the guest offers them. Content streams both ways in constant memory. */
import { Readable } from "node:stream";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import {
  CHANNEL,
  FIELD,
  FILE_TYPE,
  type FieldList,
  type Fields,
  FRAME,
  NOTE,
  ProtocolError,
  WATCH_EVENT,
} from "@holdfast/protocol/guest";
import type { FileEntry, SandboxFiles, Watch, WatchEvent, WriteOptions } from "../engine.js";
import type { GuestConnection, GuestStream } from "./connection.js";
import { CreditQueue } from "./credit-queue.js";

const WINDOW_BYTES = 1024 * 1024;
const GRANT_STEP_BYTES = WINDOW_BYTES / 4;

const TYPE_NAMES: Readonly<Record<number, FileEntry["type"]>> = {
  [FILE_TYPE.FILE]: "file",
  [FILE_TYPE.DIRECTORY]: "directory",
  [FILE_TYPE.SYMLINK]: "symlink",
  [FILE_TYPE.OTHER]: "other",
};

const EVENT_NAMES: Readonly<Record<number, WatchEvent["kind"]>> = {
  [WATCH_EVENT.CREATE]: "create",
  [WATCH_EVENT.WRITE]: "write",
  [WATCH_EVENT.REMOVE]: "remove",
  [WATCH_EVENT.RENAME]: "rename",
  [WATCH_EVENT.CHMOD]: "chmod",
  [WATCH_EVENT.OVERFLOW]: "overflow",
};

function attributesFromFields(fields: Fields): Record<string, Buffer> {
  const attributes: Record<string, Buffer> = Object.create(null);
  for (const pair of fields.allBytes(FIELD.XATTR)) {
    const equals = pair.indexOf("=");
    if (equals > 0) attributes[pair.subarray(0, equals).toString("utf8")] = Buffer.from(pair.subarray(equals + 1));
  }
  return attributes;
}

export function entryFromFields(fields: Fields): FileEntry {
  const type = TYPE_NAMES[fields.number(FIELD.FILE_TYPE) ?? 0];
  const path = fields.text(FIELD.PATH);
  if (type === undefined || path === undefined)
    throw new ProtocolError("the guest described a file without type or path");
  const target = fields.text(FIELD.LINK_TARGET);
  const targetType = fields.number(FIELD.TARGET_TYPE);
  return {
    name: fields.text(FIELD.NAME) ?? "",
    path,
    type,
    sizeBytes: fields.number(FIELD.SIZE) ?? 0,
    mode: fields.number(FIELD.MODE) ?? 0,
    uid: fields.number(FIELD.UID) ?? 0,
    gid: fields.number(FIELD.GID) ?? 0,
    owner: fields.text(FIELD.OWNER) ?? "",
    group: fields.text(FIELD.GROUP) ?? "",
    modifiedNs: fields.bigint(FIELD.MTIME_NS) ?? 0n,
    link:
      target === undefined
        ? undefined
        : {
            target,
            resolved: fields.text(FIELD.LINK_RESOLVED),
            targetType: targetType === undefined ? undefined : TYPE_NAMES[targetType],
            targetMode: fields.number(FIELD.TARGET_MODE),
            targetSizeBytes: fields.number(FIELD.TARGET_SIZE),
          },
    attributes: attributesFromFields(fields),
  };
}

/** For a request that was "done" without the answer it is about. */
function noAnswer(): HoldfastError {
  return new HoldfastError("guest_fault", "the guest ended a request without an answer");
}

function pathField(path: string, field = "path"): string {
  // An empty path would be the home directory, which nobody means who forgets to fill one in, least of all to remove it.
  if (typeof path !== "string" || path === "" || path.includes("\0"))
    throw invalidArgument(field, path, "a path, not empty and without NUL bytes");
  return path;
}

export class GuestFiles implements SandboxFiles {
  readonly #connection: () => GuestConnection;
  readonly #relief: () => Promise<void> | undefined;

  /**
   * Asks for the connection each time: after a reconnect it is another one. `relief`: what a new request has to wait for,
   * if for anything.
   */
  constructor(connection: () => GuestConnection, relief: () => Promise<void> | undefined = () => undefined) {
    this.#connection = connection;
    this.#relief = relief;
  }

  async stat(path: string, options: { user?: string } = {}): Promise<FileEntry> {
    const fields: FieldList = [
      [FIELD.PATH, pathField(path)],
      [FIELD.USER, options.user],
    ];
    return this.#request(FRAME.STAT, fields, entryFromFields);
  }

  list(path: string, options: { user?: string; depth?: number } = {}): AsyncIterable<FileEntry> {
    return this.#notes(
      FRAME.LIST,
      [
        [FIELD.PATH, pathField(path)],
        [FIELD.USER, options.user],
        [FIELD.DEPTH, options.depth ?? 1],
      ],
      (note) => entryFromFields(note),
    ).queue;
  }

  async read(
    path: string,
    options: { user?: string; offset?: number; length?: number } = {},
  ): Promise<{ entry: FileEntry; content: Readable }> {
    const fields: FieldList = [
      [FIELD.PATH, pathField(path)],
      [FIELD.USER, options.user],
      [FIELD.OFFSET, options.offset],
      [FIELD.LENGTH, options.length],
    ];
    const connection = await this.#ready();
    return new Promise((resolve, reject) => {
      let owed = 0;
      const content = new Readable({
        highWaterMark: 0,
        read() {
          // A pull pays for what has been handed out so far; the guest is never further ahead than its window.
          if (owed >= GRANT_STEP_BYTES) {
            stream.grant(CHANNEL.out, owed);
            owed = 0;
          }
        },
        destroy(error, callback) {
          stream.reset();
          callback(error);
        },
      });
      const stream = connection.openStream(
        FRAME.READ,
        fields,
        {
          onNote: (note) => resolve({ entry: entryFromFields(note), content }),
          onData: (_channel, bytes) => {
            owed += bytes.length;
            content.push(bytes);
          },
          onEnd: (result) => {
            // If the note has come, this promise is settled already.
            reject(result instanceof HoldfastError ? result : noAnswer());
            if (result instanceof HoldfastError) {
              content.destroy(result);
              content.on("error", () => {});
            } else {
              content.push(null);
            }
          },
        },
        { window: WINDOW_BYTES },
      );
    });
  }

  async write(path: string, content: Readable | Buffer | string, options: WriteOptions = {}): Promise<FileEntry> {
    const attributes = Object.entries(options.attributes ?? {}).map(
      ([name, value]) => [FIELD.XATTR, Buffer.concat([Buffer.from(`${name}=`), Buffer.from(value as string)])] as const,
    );
    const fields: FieldList = [
      [FIELD.PATH, pathField(path)],
      [FIELD.USER, options.user],
      [FIELD.MODE, options.mode],
      [FIELD.OFFSET, options.offset],
      [FIELD.ATOMIC, (options.atomic ?? options.offset === undefined) ? 1 : 0],
      [FIELD.PARENTS, (options.parents ?? true) ? 1 : 0],
      ...attributes,
    ];
    const source = content instanceof Readable ? content : Readable.from([Buffer.from(content)], { objectMode: false });
    // Should it break while nobody reads it: whoever reads it then is told.
    source.on("error", () => {});
    const connection = await this.#ready();
    let settle: (result: Fields | HoldfastError) => void = () => {};
    const settled = new Promise<Fields | HoldfastError>((resolve) => {
      settle = resolve;
    });
    const stream = connection.openStream(FRAME.WRITE, fields, { onEnd: (result) => settle(result) });
    try {
      for await (const chunk of source) {
        await stream.send(typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Buffer));
        if (stream.ended) break;
      }
    } catch (error) {
      // The source broke: an atomic write must not put half a file in place.
      stream.reset();
      throw error;
    }
    stream.sendEof(CHANNEL.in);
    const answer = await settled;
    if (answer instanceof HoldfastError) throw answer;
    return connection.understand(() => entryFromFields(answer));
  }

  async makeDirectory(
    path: string,
    options: { user?: string; mode?: number; parents?: boolean } = {},
  ): Promise<{ entry: FileEntry; created: boolean }> {
    return this.#request(
      FRAME.MKDIR,
      [
        [FIELD.PATH, pathField(path)],
        [FIELD.USER, options.user],
        [FIELD.MODE, options.mode],
        [FIELD.PARENTS, (options.parents ?? true) ? 1 : 0],
      ],
      (answer) => ({ entry: entryFromFields(answer), created: answer.number(FIELD.CREATED) === 1 }),
    );
  }

  async move(from: string, to: string, options: { user?: string } = {}): Promise<FileEntry> {
    return this.#request(
      FRAME.MOVE,
      [
        [FIELD.PATH, pathField(from, "from")],
        [FIELD.TO, pathField(to, "to")],
        [FIELD.USER, options.user],
        [FIELD.PARENTS, 1],
      ],
      entryFromFields,
    );
  }

  async remove(path: string, options: { user?: string; recursive?: boolean } = {}): Promise<number> {
    return this.#request(
      FRAME.REMOVE,
      [
        [FIELD.PATH, pathField(path)],
        [FIELD.USER, options.user],
        [FIELD.RECURSIVE, (options.recursive ?? true) ? 1 : 0],
      ],
      (answer) => answer.number(FIELD.COUNT) ?? 0,
    );
  }

  async watch(
    path: string,
    options: { user?: string; recursive?: boolean; signal?: AbortSignal } = {},
  ): Promise<Watch> {
    if (options.signal?.aborted) throw new HoldfastError("canceled", "the watch was canceled");
    let ready: () => void = () => {};
    let failed: (reason: Error) => void = () => {};
    let asked = 0;
    const standing = new Promise<void>((resolve, reject) => {
      ready = resolve;
      failed = reject;
    });
    const { queue, cancel, sendEof } = this.#notes<WatchEvent>(
      FRAME.WATCH,
      [
        [FIELD.PATH, pathField(path)],
        [FIELD.USER, options.user],
        [FIELD.RECURSIVE, options.recursive === true ? 1 : 0],
      ],
      (note) => {
        if (note.number(FIELD.NOTE_KIND) === NOTE.READY) {
          ready();
          if (asked === 0) return undefined;
          asked -= 1;
          return { kind: "caught_up", name: "" };
        }
        const kind = EVENT_NAMES[note.number(FIELD.EVENT) ?? 0];
        if (kind === undefined) throw new ProtocolError("the guest sent a watch event of no known kind");
        return { kind, name: note.text(FIELD.NAME) ?? "" };
      },
      (result) => failed(result),
    );
    options.signal?.addEventListener("abort", cancel, { once: true });
    await standing;
    return {
      [Symbol.asyncIterator]: () => queue[Symbol.asyncIterator](),
      catchUp() {
        asked += 1;
        sendEof();
      },
    };
  }

  /** Every request goes through here: what is begun while there is no memory for it fails for reasons that nobody understands. */
  async #ready(): Promise<GuestConnection> {
    await this.#relief();
    return this.#connection();
  }

  /** One answer, read by `read`; an answer that makes no sense ends the connection. */
  async #request<T>(type: number, fields: FieldList, read: (answer: Fields) => T): Promise<T> {
    const connection = await this.#ready();
    const answer = await connection.request(type, fields);
    return connection.understand(() => read(answer));
  }

  /**
   * A request whose answer is a row of notes. `parse` returns undefined for a note that is not an item. Whoever has had
   * enough before the request could be made leaves nothing behind.
   */
  #notes<T>(
    type: number,
    fields: FieldList,
    parse: (note: Fields) => T | undefined,
    onEnded?: (reason: HoldfastError) => void,
  ): { readonly queue: CreditQueue<T>; readonly cancel: () => void; readonly sendEof: () => void } {
    let stream: GuestStream | undefined;
    let isCanceled = false;
    let owed = 0;
    const giveBack = (bytes: number) => {
      owed += bytes;
      if (owed >= GRANT_STEP_BYTES) {
        stream?.grant(CHANNEL.out, owed);
        owed = 0;
      }
    };
    const onEnd = (result: Fields | HoldfastError) => {
      const failure = result instanceof HoldfastError ? result : undefined;
      onEnded?.(failure ?? noAnswer());
      // A watch that we ended ourselves ends quietly.
      queue.finish(failure?.code === "canceled" ? undefined : failure);
    };
    const cancel = () => {
      isCanceled = true;
      if (stream === undefined) onEnd(new HoldfastError("canceled", "the request was canceled"));
      else stream.reset();
    };
    const queue = new CreditQueue<T>((_item, cost) => giveBack(cost), cancel);
    const onNote = (note: Fields, payloadBytes: number) => {
      const item = parse(note);
      if (item === undefined) giveBack(payloadBytes);
      else queue.push(item, payloadBytes);
    };
    const open = (connection: GuestConnection) => {
      if (isCanceled) return;
      stream = connection.openStream(type, fields, { onNote, onEnd }, { window: WINDOW_BYTES, notesNeedCredit: true });
    };
    this.#ready()
      .then(open)
      .catch((reason) => onEnd(HoldfastError.from(reason)));
    return { queue, cancel, sendEof: () => stream?.sendEof(CHANNEL.in) };
  }
}
