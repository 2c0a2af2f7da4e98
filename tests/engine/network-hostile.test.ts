/** What a guest says about its way out is hostile input: it gets what the policy allows, or costs its sandbox its life. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  CHANNEL,
  encodeFields,
  encodeFrame,
  FIELD,
  type FieldList,
  Fields,
  FRAME,
  type Frame,
  FrameReader,
  NOTE,
  WIRE_VERSION,
} from "@holdfast/protocol/guest";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { GuestConnection } from "../../packages/engine/src/guest/connection.js";
import { Egress } from "../../packages/engine/src/network/egress.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB } from "../helpers/use-engine.js";

const HELLO = encodeFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, WIRE_VERSION]]));
const LOOPBACK = 0x7f000001;

/** However it closes: a reset is an error of its own. */
const closedOf = (socket: Socket | undefined) =>
  new Promise<void>((resolve) => socket?.resume().once("close", resolve));

/** A guest that does what a test tells it to. */
class FakeGuest {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  #onFrame: (() => void) | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
    const reader = new FrameReader();
    socket
      .on("error", () => {})
      .on("data", (chunk: Buffer) => {
        for (const frame of reader.push(chunk)) this.frames.push({ ...frame, payload: Buffer.from(frame.payload) });
        this.#onFrame?.();
      });
    socket.write(HELLO);
  }

  async next(type: number): Promise<Frame> {
    for (;;) {
      const at = this.frames.findIndex((frame) => frame.type === type);
      const [found] = at < 0 ? [] : this.frames.splice(at, 1);
      if (found !== undefined) return found;
      await new Promise<void>((resolve, reject) => {
        this.#onFrame = resolve;
        setTimeout(() => reject(new Error(`no frame of type ${type}`)), patienceMs(2000)).unref();
      });
    }
  }

  send(type: number, stream: number, payload: Buffer = Buffer.alloc(0), channel = 0): void {
    this.socket.write(encodeFrame(type, channel, stream, payload));
  }

  note(stream: number, fields: FieldList): void {
    this.send(FRAME.NOTE, stream, encodeFields(fields));
  }
}

const connectionNote = (number: number | bigint, address: number | bigint, port: number | bigint): FieldList => [
  [FIELD.NOTE_KIND, NOTE.CONNECTION],
  [FIELD.CONNECTION, number],
  [FIELD.ADDRESS, address],
  [FIELD.PORT, port],
];
const queryNote = (number: number, datagram: Buffer): FieldList => [
  [FIELD.NOTE_KIND, NOTE.QUERY],
  [FIELD.QUERY, number],
  [FIELD.DATAGRAM, datagram],
];

describe("a way out with a fake guest", () => {
  let directory: string;
  let server: Server;
  let outside: Server;
  let outsidePort: number;
  const outsideSockets: Socket[] = [];
  let guest: FakeGuest;
  let connection: GuestConnection;
  let egress: Egress;
  let stream: number;
  const refused: string[] = [];

  beforeEach(async () => {
    directory = mkdtempSync(OUR_DIRECTORIES);
    const path = join(directory, "guest.sock");
    server = createServer();
    server.listen(path);
    await once(server, "listening");
    outside = createServer((socket) => {
      outsideSockets.push(socket);
      socket.on("error", () => {});
    });
    outside.listen(0, "127.0.0.1");
    await once(outside, "listening");
    outsidePort = (outside.address() as AddressInfo).port;
    const accepted = once(server, "connection") as Promise<[Socket]>;
    const opening = GuestConnection.open(path);
    guest = new FakeGuest((await accepted)[0]);
    connection = await opening;
    refused.length = 0;
    egress = new Egress({
      connection,
      rules: { allow: [`127.0.0.1:${outsidePort}`], deny: [] },
      nameservers: () => [],
      onRefused: (target) => refused.push(target),
    });
    stream = (await guest.next(FRAME.EGRESS)).stream;
  });
  afterEach(async () => {
    egress.close();
    connection.close();
    guest.socket.destroy();
    for (const socket of outsideSockets.splice(0)) socket.destroy();
    await Promise.all([server, outside].map((one) => new Promise((resolve) => one.close(resolve))));
    rmSync(directory, { recursive: true, force: true });
  });

  it.each<[string, FieldList]>([
    ["no kind", [[FIELD.CONNECTION, 1]]],
    ["an unknown kind", [[FIELD.NOTE_KIND, NOTE.ENTRY]]],
    [
      "a connection without a number",
      [
        [FIELD.NOTE_KIND, NOTE.CONNECTION],
        [FIELD.ADDRESS, 1],
        [FIELD.PORT, 1],
      ],
    ],
    [
      "a connection to nowhere",
      [
        [FIELD.NOTE_KIND, NOTE.CONNECTION],
        [FIELD.CONNECTION, 1],
      ],
    ],
    ["an address of more than 32 bits", connectionNote(1, 2n ** 32n, 80)],
    ["a port of more than 16 bits", connectionNote(1, LOOPBACK, 65_536)],
    ["numbers beyond all numbers", connectionNote(2n ** 64n - 1n, LOOPBACK, 80)],
    [
      "a question without one",
      [
        [FIELD.NOTE_KIND, NOTE.QUERY],
        [FIELD.QUERY, 1],
      ],
    ],
    ["a question that is too long", queryNote(1, Buffer.alloc(4097))],
  ])("ends the connection after a note with %s", async (_what, fields) => {
    guest.note(stream, fields);
    expect(await connection.closed).toMatchObject({ code: "guest_fault", details: { protocol: true } });
  });

  it("ends the connection when a number comes twice, or more than was paid for", async () => {
    for (let i = 0; i < 2; i++) guest.note(stream, queryNote(1, Buffer.alloc(3000)));
    // The first may be dealt with by then: it is no question.
    for (let i = 0; i < 40; i++) guest.note(stream, connectionNote(5, LOOPBACK, outsidePort));
    expect(await connection.closed).toMatchObject({ details: { protocol: true } });
  });

  it.each([
    ["this host's loopback", LOOPBACK, 22],
    ["cloud metadata", 0xa9fea9fe, 80],
    ["everybody", 0xffffffff, 80],
    ["nobody", 0, 80],
    ["port 0", 0x08080808, 0],
  ])("refuses %s, and says so once", async (_what, address, port) => {
    for (const number of [1, 2, 3]) {
      guest.note(stream, connectionNote(number, address, port));
      const answer = await guest.next(FRAME.REFUSE);
      expect(new Fields(answer.payload).number(FIELD.CONNECTION)).toBe(number);
      guest.send(FRAME.DONE, answer.stream);
    }
    expect(refused).toHaveLength(1);
    expect(egress.counters).toMatchObject({ connections: 0, refused: 3 });
    expect(outsideSockets).toEqual([]);
  });

  it("carries a connection, and counts it", async () => {
    guest.note(stream, connectionNote(9, LOOPBACK, outsidePort));
    const accept = await guest.next(FRAME.ACCEPT);
    expect(new Fields(accept.payload).number(FIELD.CONNECTION)).toBe(9);
    guest.note(accept.stream, [[FIELD.NOTE_KIND, NOTE.CONNECTED]]);
    guest.send(FRAME.DATA, accept.stream, Buffer.from("request"), CHANNEL.out);
    const [socket] = outsideSockets;
    const [bytes] = (await once(socket as Socket, "data")) as [Buffer];
    expect(bytes.toString()).toBe("request");
    guest.send(FRAME.EOF, accept.stream, undefined, CHANNEL.out);
    guest.send(FRAME.DONE, accept.stream);
    await once(socket as Socket, "close");
    for (let i = 0; i < 100 && egress.counters.bytesOut === 0; i++) await sleep(10);
    expect(egress.counters).toMatchObject({ connections: 1, refused: 0, failed: 0, bytesOut: 7, bytesIn: 0 });
  });

  it.each([
    [
      "data after its end",
      (to: number) => {
        guest.send(FRAME.EOF, to, undefined, CHANNEL.out);
        guest.send(FRAME.DATA, to, Buffer.from("more"), CHANNEL.out);
      },
    ],
    ["the end of both directions without a word", (to: number) => guest.send(FRAME.DONE, to)],
    ["a failure", (to: number) => guest.send(FRAME.FAIL, to)],
    [
      "two beginnings and a failure",
      (to: number) => {
        for (let i = 0; i < 2; i++) guest.note(to, [[FIELD.NOTE_KIND, NOTE.CONNECTED]]);
        guest.send(FRAME.FAIL, to);
      },
    ],
  ])("lets go of a server after %s", async (_what, act) => {
    guest.note(stream, connectionNote(9, LOOPBACK, outsidePort));
    const accept = await guest.next(FRAME.ACCEPT);
    guest.note(accept.stream, [[FIELD.NOTE_KIND, NOTE.CONNECTED]]);
    await sleep(20);
    const [socket] = outsideSockets;
    const closed = closedOf(socket);
    act(accept.stream);
    await closed;
    await sleep(20);
    expect(connection.isOpen).toBe(true);
  });

  it("does not grow with a guest that asks without end and listens to nothing", async () => {
    guest.socket.pause();
    let sent = 0;
    const flood = () => {
      for (let i = 0; i < 100; i++) guest.note(stream, connectionNote(++sent, LOOPBACK, 22));
      // What it was given at the start; beyond that it would have to be right about what it has not read.
      if (sent < 1000 && !guest.socket.destroyed) setImmediate(flood);
    };
    const before = process.memoryUsage.rss();
    flood();
    await sleep(500);
    expect(connection.isOpen).toBe(true);
    for (let i = 0; i < 2000; i++) guest.note(stream, connectionNote(++sent, LOOPBACK, 22));
    await sleep(500);
    expect(connection.unsentBytes).toBeLessThan(MIB);
    expect(process.memoryUsage.rss() - before).toBeLessThan(32 * MIB);
  });

  it("goes on while a guest wants more than it may have at once", { timeout: patienceMs(20_000) }, async () => {
    // As a guest that waits for its credit: 2,000 connections to a port where nobody is.
    let credit = 64 * 1024;
    let [sent, answered] = [0, 0];
    const note = (number: number) => encodeFields(connectionNote(number, LOOPBACK, 1));
    while (answered < 2000) {
      while (sent < 2000 && credit >= note(1).length) {
        credit -= note(1).length;
        guest.note(stream, connectionNote(++sent, LOOPBACK, 1));
      }
      const { type, stream: of, payload } = guest.frames.shift() ?? { type: 0, stream: 0, payload: Buffer.alloc(0) };
      if (type === FRAME.WINDOW && of === stream) credit += payload.readUInt32LE();
      else if (type === FRAME.REFUSE) {
        answered += 1;
        guest.send(FRAME.DONE, of);
      } else if (type === 0) await sleep(1);
    }
    expect(egress.counters.refused).toBe(2000);
  });

  it("ends with the guest's stream, and leaves nobody connected", async () => {
    guest.note(stream, connectionNote(9, LOOPBACK, outsidePort));
    const accept = await guest.next(FRAME.ACCEPT);
    guest.note(accept.stream, [[FIELD.NOTE_KIND, NOTE.CONNECTED]]);
    await sleep(20);
    const closed = closedOf(outsideSockets[0]);
    guest.send(FRAME.DONE, stream);
    await closed;
  });
});
