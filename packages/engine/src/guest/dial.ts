/** A connection to a port or unix socket inside the sandbox, as a Duplex. */
import { Duplex } from "node:stream";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { CHANNEL, FIELD, FRAME } from "@holdfast/protocol/guest";
import type { GuestConnection } from "./connection.js";

const WINDOW_BYTES = 256 * 1024;
const GRANT_STEP_BYTES = WINDOW_BYTES / 4;

export type DialTarget = { readonly port: number } | { readonly path: string };

export function dialGuest(connection: GuestConnection, target: DialTarget): Promise<Duplex> {
  if ("port" in target && !(Number.isInteger(target.port) && target.port >= 1 && target.port <= 65535)) {
    throw invalidArgument("port", target.port, "a port from 1 to 65535");
  }
  return new Promise((resolve, reject) => {
    let owed = 0;
    const socket = new Duplex({
      allowHalfOpen: true,
      read() {
        if (owed >= GRANT_STEP_BYTES) {
          stream.grant(CHANNEL.out, owed);
          owed = 0;
        }
      },
      write(chunk: Buffer, _encoding, callback) {
        stream.send(chunk).then(() => callback(), callback);
      },
      final(callback) {
        stream.sendEof(CHANNEL.in);
        callback();
      },
      destroy(error, callback) {
        stream.reset();
        callback(error);
      },
    });

    const stream = connection.openStream(
      FRAME.DIAL,
      "port" in target ? [[FIELD.PORT, target.port]] : [[FIELD.PATH, target.path]],
      {
        onNote: () => resolve(socket),
        onData: (_channel, bytes) => {
          owed += bytes.length;
          socket.push(bytes);
        },
        onEof: () => socket.push(null),
        onEnd: (result) => {
          // If it was connected, this promise is settled already.
          reject(
            result instanceof HoldfastError
              ? result
              : new HoldfastError("guest_fault", "the guest ended a request without an answer"),
          );
          if (result instanceof HoldfastError) {
            if (!socket.destroyed) socket.destroy(result);
            socket.on("error", () => {});
          } else {
            socket.push(null);
          }
        },
      },
      { window: WINDOW_BYTES },
    );
  });
}
