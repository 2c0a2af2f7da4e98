/** Whatever a guest says is hostile input: it costs that sandbox its life, and nobody else anything. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { HoldfastError } from "@holdfast/protocol";
import {
  CHANNEL,
  encodeFields,
  encodeFrame,
  FIELD,
  type FieldList,
  FRAME,
  NOTE,
  WIRE_VERSION,
} from "@holdfast/protocol/guest";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { CommandStream } from "../../packages/engine/src/guest/command-stream.js";
import { GuestConnection } from "../../packages/engine/src/guest/connection.js";
import { dialGuest } from "../../packages/engine/src/guest/dial.js";
import { GuestFiles } from "../../packages/engine/src/guest/files.js";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { fixturePath } from "../helpers/fixtures.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB } from "../helpers/use-engine.js";

const HELLO = encodeFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, WIRE_VERSION]]));
/** The first stream that a connection opens; the fake guest need not read what it is asked. */
const FIRST_STREAM = 2;

const note = (fields: FieldList, stream = FIRST_STREAM) => encodeFrame(FRAME.NOTE, 0, stream, encodeFields(fields));
const started = note([
  [FIELD.NOTE_KIND, NOTE.STARTED],
  [FIELD.PID, 7],
]);
const gap = (offset: number, length: number) =>
  note([
    [FIELD.NOTE_KIND, NOTE.GAP],
    [FIELD.CHANNEL, CHANNEL.out],
    [FIELD.OFFSET, offset],
    [FIELD.LENGTH, length],
  ]);
const done = encodeFrame(FRAME.DONE, 0, FIRST_STREAM, Buffer.alloc(0));

function header(values: { length?: number; type?: number; flags?: number; stream?: number }): Buffer {
  const bytes = Buffer.alloc(12);
  bytes.writeUInt32LE(values.length ?? 0, 0);
  bytes.writeUInt8(values.type ?? FRAME.DATA, 4);
  bytes.writeUInt16LE(values.flags ?? 0, 6);
  bytes.writeUInt32LE(values.stream ?? FIRST_STREAM, 8);
  return bytes;
}

describe("a connection to a fake guest", () => {
  let directory: string;
  let server: Server;
  let path: string;
  let connection: GuestConnection | undefined;
  const sockets: Socket[] = [];

  /** What the fake does with a connection. */
  const listen = async (onConnection: (socket: Socket) => void) => {
    server = createServer((socket) => {
      sockets.push(socket);
      socket.on("error", () => {});
      onConnection(socket);
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
  };
  /** It says hello and answers the first request with this. */
  const answering = async (...answers: Buffer[]) => {
    await listen((socket) => {
      socket.write(HELLO);
      let [received, answered] = [0, false];
      socket.on("data", (chunk) => {
        received += chunk.length;
        // Our own HELLO is as long as theirs; what comes after it is the request.
        if (received <= HELLO.length || answered) return;
        answered = true;
        for (const answer of answers) socket.write(answer);
      });
    });
    connection = await GuestConnection.open(path);
    return connection;
  };
  const startCommand = (on: GuestConnection) => new CommandStream(on, 1, FRAME.START, [[FIELD.COMMAND_ID, 1]]);
  /** Of a promise that must come to some end by itself. */
  const outcomeOf = (promise: Promise<unknown>) =>
    Promise.race([
      promise.then(
        () => "resolved",
        (error: unknown) => error,
      ),
      sleep(patienceMs(1000), "nothing at all"),
    ]);

  beforeEach(() => {
    directory = mkdtempSync(OUR_DIRECTORIES);
    path = join(directory, "guest.sock");
  });
  afterEach(async () => {
    connection?.close();
    connection = undefined;
    for (const socket of sockets.splice(0)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
    rmSync(directory, { recursive: true, force: true });
  });

  it.each([
    ["garbage", Buffer.alloc(4096, "these are no frames")],
    ["a frame of 4 GiB", header({ length: 0xffffffff, type: FRAME.HELLO, stream: 0 })],
    ["unknown flags", header({ type: FRAME.HELLO, flags: 1, stream: 0 })],
    ["a stream id out of range", header({ type: FRAME.HELLO, stream: 0x80000000 })],
    ["another frame than HELLO", encodeFrame(FRAME.PING, 0, 0, Buffer.alloc(0))],
    ["a HELLO without a version", encodeFrame(FRAME.HELLO, 0, 0, Buffer.alloc(0))],
    ["another version", encodeFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, 2]]))],
    ["a version of one byte", encodeFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, Buffer.from([1])]]))],
    ["a field that runs past its message", encodeFrame(FRAME.HELLO, 0, 0, Buffer.from([1, 255, 0, 0, 0, 1]))],
  ])("is refused after %s", async (_what, bytes) => {
    await listen((socket) => socket.write(bytes));
    await expect(GuestConnection.open(path)).rejects.toMatchObject({
      name: "HoldfastError",
      code: "guest_fault",
      details: { protocol: true },
    });
  });

  it("is refused when the guest says nothing or goes away", async () => {
    await listen((socket) => setTimeout(() => socket.destroy(), 200));
    await expect(GuestConnection.open(path, { timeoutMs: 50 })).rejects.toMatchObject({
      code: "guest_fault",
      message: expect.stringContaining("50 ms"),
    });
    await expect(GuestConnection.open(path)).rejects.toMatchObject({ code: "guest_fault" });
  });

  it("understands frames that come a byte at a time", async () => {
    await listen((socket) => {
      void (async () => {
        for (const byte of HELLO) {
          socket.write(Buffer.from([byte]));
          await sleep(1);
        }
      })();
    });
    connection = await GuestConnection.open(path);
    expect(connection.isOpen).toBe(true);
  });

  it.each([
    ["a frame for a stream that is not open", encodeFrame(FRAME.DONE, 0, 4711, Buffer.alloc(0))],
    ["a frame of unknown type", encodeFrame(0x7f, 0, FIRST_STREAM, Buffer.alloc(0))],
    ["a request of its own", encodeFrame(FRAME.START, 0, FIRST_STREAM, Buffer.alloc(0))],
    ["data on the connection itself", encodeFrame(FRAME.DATA, 1, 0, Buffer.alloc(1))],
    ["a WINDOW of the wrong size", encodeFrame(FRAME.WINDOW, 0, FIRST_STREAM, Buffer.alloc(3))],
    [
      "a process that cannot be",
      note([
        [FIELD.NOTE_KIND, NOTE.STARTED],
        [FIELD.PID, 0],
      ]),
    ],
    [
      "an exit that cannot be",
      Buffer.concat([
        started,
        note([
          [FIELD.NOTE_KIND, NOTE.EXITED],
          [FIELD.EXIT_KIND, 0],
          [FIELD.EXIT_CODE, 256],
        ]),
      ]),
    ],
    [
      "an exit of no kind",
      Buffer.concat([
        started,
        note([
          [FIELD.NOTE_KIND, NOTE.EXITED],
          [FIELD.EXIT_KIND, 9],
          [FIELD.SIGNAL, 9],
        ]),
      ]),
    ],
    ["a gap where none can be", Buffer.concat([started, gap(5, 10)])],
    [
      "a gap of endless length",
      Buffer.concat([
        started,
        note([
          [FIELD.NOTE_KIND, NOTE.GAP],
          [FIELD.CHANNEL, 1],
          [FIELD.OFFSET, 0],
          [FIELD.LENGTH, 2n ** 64n - 1n],
        ]),
      ]),
    ],
    [
      "output on a channel that is none",
      Buffer.concat([started, encodeFrame(FRAME.DATA, 7, FIRST_STREAM, Buffer.alloc(1))]),
    ],
    ["a note of a file about a command", note([[FIELD.NOTE_KIND, NOTE.ENTRY]])],
    [
      "more than its credit",
      Buffer.concat([
        started,
        ...Array.from({ length: 6 }, () => encodeFrame(FRAME.DATA, CHANNEL.out, FIRST_STREAM, Buffer.alloc(65_536))),
      ]),
    ],
  ])("ends after %s, and everything on it learns why", async (_what, answer) => {
    const on = await answering(answer);
    const command = startCommand(on);
    command.started.catch(() => {});
    const reason = await outcomeOf(on.closed.then((closed) => Promise.reject(closed)));
    expect(reason).toMatchObject({ name: "HoldfastError", code: "guest_fault", details: { protocol: true } });
    expect(
      await outcomeOf(command.exited.then((exit) => (exit instanceof HoldfastError ? Promise.reject(exit) : exit))),
    ).toBe(reason);
    expect(await outcomeOf(on.request(FRAME.COMMANDS, []))).toBe(reason);
  });

  it("does not wait for ever for a command whose start was never reported", async () => {
    const command = startCommand(await answering(done));
    expect(await outcomeOf(command.started)).toMatchObject({ name: "HoldfastError" });
  });

  it.each([
    ["a read", (files: GuestFiles) => files.read("/x")],
    ["a watch", (files: GuestFiles) => files.watch("/x")],
    ["a stat", (files: GuestFiles) => files.stat("/x")],
    ["a write", (files: GuestFiles) => files.write("/x", "")],
    ["a new directory", (files: GuestFiles) => files.makeDirectory("/x")],
  ])("does not wait for ever for %s that was done without an answer", async (_what, act) => {
    const on = await answering(done);
    expect(await outcomeOf(act(new GuestFiles(() => on)))).toMatchObject({
      name: "HoldfastError",
      code: "guest_fault",
    });
  });

  it("does not wait for ever for a dialled connection that never was", async () => {
    expect(await outcomeOf(dialGuest(await answering(done), { port: 80 }))).toMatchObject({ name: "HoldfastError" });
  });

  it.each([
    ["a note that names no file", note([[FIELD.NOTE_KIND, NOTE.ENTRY]])],
    [
      "more names than it has credit for",
      Buffer.concat(
        Array.from({ length: 24 }, () =>
          note([
            [FIELD.FILE_TYPE, 1],
            [FIELD.PATH, "x".repeat(60_000)],
          ]),
        ),
      ),
    ],
  ])("ends a listing after %s", async (_what, answer) => {
    const on = await answering(answer);
    const listing = new GuestFiles(() => on).list("/")[Symbol.asyncIterator]();
    const read = (async () => {
      await on.closed;
      while ((await listing.next()).done !== true);
    })();
    expect(await outcomeOf(read)).toMatchObject({ name: "HoldfastError", code: "guest_fault" });
  });

  it("shows a failure's text without control characters and not without end", async () => {
    const text = `\x1b[31mred\x07${"x".repeat(100_000)}`;
    const on = await answering(
      encodeFrame(
        FRAME.FAIL,
        0,
        FIRST_STREAM,
        encodeFields([
          [FIELD.ERRNO_NAME, "E\x1b"],
          [FIELD.MESSAGE, text],
        ]),
      ),
    );
    const error = (await outcomeOf(on.request(FRAME.STAT, []))) as HoldfastError;
    expect(error).toMatchObject({ code: "guest_fault" });
    expect(error.message.length).toBeLessThanOrEqual(1000);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    expect(error.message).not.toMatch(/[\x00-\x1f]/);
  });

  it.each([
    ["gaps of no length", () => gap(0, 0), true],
    ["pings, reading nothing", () => encodeFrame(FRAME.PING, 0, 0, Buffer.alloc(64)), false],
    ["notes that it has started", () => started, true],
  ])("does not grow with a guest that sends endless %s", async (_what, frame, reads) => {
    let flooding = true;
    const block = Buffer.concat(Array.from({ length: 1000 }, frame));
    await listen((socket) => {
      socket.write(HELLO);
      const flood = () => {
        while (flooding && !socket.destroyed && socket.write(block));
        if (flooding && !socket.destroyed) socket.once("drain", flood);
      };
      socket.once("data", () => {
        if (!reads) socket.pause();
        setTimeout(() => {
          if (reads) socket.write(started);
          flood();
        }, 50);
      });
    });
    connection = await GuestConnection.open(path);
    const command = startCommand(connection);
    command.started.catch(() => {});
    await sleep(100);
    globalThis.gc?.();
    const before = process.memoryUsage.rss();
    // Either it is cut off, or it gets nowhere; 2 s of it would be hundreds of MiB.
    await Promise.race([connection.closed, sleep(2000)]);
    flooding = false;
    expect(process.memoryUsage.rss() - before).toBeLessThan(64 * MIB);
  });
});

const compiler = ["musl-gcc", "gcc"].find((name) => spawnSync(name, ["--version"]).status === 0);

describe.skipIf(compiler === undefined)("an engine with a fake guest (needs a C compiler)", () => {
  const guestPath = fileURLToPath(new URL("../../guest/build/holdfast-guest", import.meta.url));
  let stateDirectory: string;
  let before: Inventory;
  beforeAll(buildEngine, patienceMs(60_000));
  beforeEach(() => {
    before = takeInventory();
    stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  });
  afterEach(async () => {
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(before);
  });

  const fault = { name: "HoldfastError", code: "guest_fault" };
  const brokeProtocol = { kind: "guest_broke_protocol", why: expect.any(String) };
  it.each([
    ["exits at once", "EXIT", { create: fault }],
    ["says nothing at all", "SILENT", { create: fault }],
    ["closes the connection", "CLOSE", { create: fault }],
    ["sends garbage", "GARBAGE", { create: fault }],
    ["announces 4 GiB", "HUGE_LENGTH", { create: fault }],
    ["speaks another version", "OLD_VERSION", { create: fault }],
    ["says hello and no more", "DEAF", { start: "no answer", killed: { kind: "killed", by: "the test" } }],
    ["answers with garbage", "GARBAGE_LATER", { start: fault, sandbox: brokeProtocol }],
    ["answers somebody else", "WRONG_STREAM", { start: fault, sandbox: brokeProtocol }],
    ["sends more than it may", "TOO_MUCH", { start: "started", command: { kind: "lost" }, sandbox: brokeProtocol }],
    ["sends endless notes", "FLOOD", { start: "started", command: { kind: "lost" }, sandbox: brokeProtocol }],
  ])(
    "that %s ends that sandbox with a cause and stays well",
    async (_what, mode, expected) => {
      const fake = `${stateDirectory}/fake-guest`;
      execFileSync(compiler ?? "", ["-static", "-O1", `-DMODE=${mode}`, "-o", fake, fixturePath("fake-guest.c")]);
      // Only in that process's mount namespace does the fake lie over the real guest.
      const prefix = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$1" "$2" && shift 2 && exec "$@"',
        "deceive",
        fake,
        guestPath,
      ];
      const script = runScript("deceived.mjs", [stateDirectory, guestPath], prefix);
      const { outcome, growthBytes, afterwards } = await script.next<{
        outcome: unknown;
        growthBytes: number;
        afterwards: string;
      }>();
      expect(outcome).toMatchObject(expected);
      expect(afterwards).toBe("well\n");
      expect(growthBytes).toBeLessThan(128 * MIB);
      expect(await script.exited).toEqual({ code: 0, signal: null });
    },
    patienceMs(20_000),
  );
});
