/** A client inside that asks over TCP: questions one after the other, each with its length before it. */
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { type DnsForwarder, framed } from "./dns-forwarder.js";

const MAX_QUESTION_BYTES = 4096;
const IDLE_MS = 10_000;

export async function serveDnsOverTcp(client: Duplex, forwarder: DnsForwarder): Promise<void> {
  let received = Buffer.alloc(0);
  const idle = setTimeout(() => client.destroy(), IDLE_MS);
  idle.unref();
  try {
    // Its end is not that of our answers.
    for await (const chunk of client.iterator({ destroyOnReturn: false })) {
      received = Buffer.concat([received, chunk as Buffer]);
      while (received.length >= 2) {
        const length = received.readUInt16BE(0);
        if (length > MAX_QUESTION_BYTES) {
          client.destroy();
          return;
        }
        if (received.length < 2 + length) break;
        const answer = await forwarder.answer(received.subarray(2, 2 + length), "tcp");
        received = received.subarray(2 + length);
        if (answer === undefined || client.destroyed) {
          client.destroy();
          return;
        }
        if (!client.write(framed(answer))) await once(client, "drain");
        idle.refresh();
      }
    }
    client.end();
  } catch {
    // The client went away, or never said anything.
    client.destroy();
  } finally {
    clearTimeout(idle);
  }
}
