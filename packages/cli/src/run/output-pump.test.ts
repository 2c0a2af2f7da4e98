import { Writable } from "node:stream";
import type { OutputEvent } from "@holdfast/engine";
import { expect, test } from "vitest";
import { OutputPump } from "./output-pump.js";

function collector(highWaterMark = 16_384): Writable & { readonly bytes: Buffer[] } {
  const bytes: Buffer[] = [];
  const stream = new Writable({
    highWaterMark,
    write(chunk: Buffer, _encoding, callback) {
      bytes.push(chunk);
      setImmediate(callback);
    },
  });
  return Object.assign(stream, { bytes });
}

async function* events(...chunks: readonly (readonly ["stdout" | "stderr", Buffer])[]): AsyncGenerator<OutputEvent> {
  let offset = 0;
  for (const [stream, bytes] of chunks) {
    yield { kind: "data", stream, offset, bytes };
    offset += bytes.length;
  }
}

test("every byte arrives in order, also when the reader is slow", async () => {
  const [stdout, stderr] = [collector(4), collector(4)];
  const pump = new OutputPump({ stdout, stderr });
  const chunks = Array.from({ length: 50 }, (_, i) => ["stdout", Buffer.from([i, 255 - i, 0])] as const);
  await pump.run(events(...chunks, ["stderr", Buffer.from("e")]));
  expect(Buffer.concat(stdout.bytes)).toEqual(Buffer.concat(chunks.map(([, bytes]) => bytes)));
  expect(Buffer.concat(stderr.bytes).toString()).toBe("e");
});

test("knows whether stdout ended its last line", async () => {
  const pump = new OutputPump({ stdout: collector(), stderr: collector() });
  expect(pump.stdoutEndsLine).toBe(true);
  await pump.write("stdout", Buffer.from("a"));
  expect(pump.stdoutEndsLine).toBe(false);
  await pump.write("stderr", Buffer.from("b\n"));
  expect(pump.stdoutEndsLine).toBe(false);
  await pump.write("stdout", Buffer.from("c\n"));
  expect(pump.stdoutEndsLine).toBe(true);
});

test("a reader that goes away breaks the pump and does not hang it", async () => {
  const stdout = new Writable({
    highWaterMark: 1,
    write: (_chunk, _encoding, callback) => setImmediate(callback, Object.assign(new Error("gone"), { code: "EPIPE" })),
  });
  const pump = new OutputPump({ stdout, stderr: collector() });
  await pump.run(events(["stdout", Buffer.from("abc")], ["stdout", Buffer.from("def")]));
  expect((await pump.broken).code).toBe("EPIPE");
  expect(pump.isBroken).toBe(true);
});

test("a gap is told where it is", async () => {
  const stderr = collector();
  const pump = new OutputPump({ stdout: collector(), stderr });
  const gap = { kind: "gap", stream: "stdout", offset: 0, length: 7 } as const;
  await pump.run(
    (async function* () {
      yield gap;
    })(),
  );
  expect(Buffer.concat(stderr.bytes).toString()).toBe("holdfast: 7 bytes of stdout are lost here\n");
});
