/** Connections through a guest, as Duplexes: to a port or unix socket inside, or from a program inside that wants out. */
import { Duplex } from "node:stream";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { CHANNEL, FIELD, type FieldList, FRAME } from "@holdfast/protocol/guest";
import type { GuestConnection } from "./connection.js";

const WINDOW_BYTES = 256 * 1024;

export type DialTarget = { readonly port: number } | { readonly path: string };

export function dialGuest(connection: GuestConnection, target: DialTarget): Promise<Duplex> {
  if ("port" in target && !(Number.isInteger(target.port) && target.port >= 1 && target.port <= 65535)) {
    throw invalidArgument("port", target.port, "a port from 1 to 65535");
  }
  const fields: FieldList = "port" in target ? [[FIELD.PORT, target.port]] : [[FIELD.PATH, target.path]];
  return openConnection(connection, FRAME.DIAL, fields, { windowBytes: WINDOW_BYTES });
}

/**
 * Lets a program inside have its connection. When it has closed it for good nothing more can be sent to it: the Duplex is
 * then destroyed as soon as what came from it is read.
 */
export async function acceptFromGuest(
  connection: GuestConnection,
  number: number,
  options: { readonly windowBytes: number },
): Promise<Duplex> {
  return openConnection(connection, FRAME.ACCEPT, [[FIELD.CONNECTION, number]], {
    ...options,
    onDone: (socket) => {
      if (socket.readableEnded) socket.destroy();
      else socket.once("end", () => socket.destroy());
    },
  });
}

function openConnection(
  connection: GuestConnection,
  type: number,
  fields: FieldList,
  options: { readonly windowBytes: number; readonly onDone?: (socket: Duplex) => void },
): Promise<Duplex> {
  const grantStepBytes = options.windowBytes / 4;
  return new Promise((resolve, reject) => {
    let owed = 0;
    const socket = new Duplex({
      allowHalfOpen: true,
      read() {
        if (owed >= grantStepBytes) {
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
      type,
      fields,
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
            options.onDone?.(socket);
          }
        },
      },
      { window: options.windowBytes },
    );
  });
}
