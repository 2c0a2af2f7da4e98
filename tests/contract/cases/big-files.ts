import { createHash } from "node:crypto";
import { expect } from "vitest";
import type { Cases } from "../cell.js";

const MIB = 1024 * 1024;
const SIZE_MIB = 200;

/** A different megabyte each time it is asked. */
function* megabytes(count: number): Generator<Uint8Array> {
  const block = new Uint32Array(MIB / 4);
  for (let n = 0; n < block.length; n++) block[n] = Math.imul(n, 2654435761);
  for (let i = 0; i < count; i++) {
    block[0] = i;
    yield new Uint8Array(block.buffer.slice(0));
  }
}

export const bigFileCases: Cases = {
  "200 MB stream up and down, and nobody holds them": {
    timeoutMs: 120_000,
    run: async ({ sandbox }) => {
      const sent = createHash("sha256");
      const source = megabytes(SIZE_MIB);
      const upload = new ReadableStream<Uint8Array>({
        pull(controller) {
          const { done, value } = source.next();
          if (done === true) return controller.close();
          sent.update(value);
          controller.enqueue(value);
        },
      });
      await sandbox.files.write("/tmp/big.bin", upload);
      const expected = sent.digest("hex");
      expect((await sandbox.files.getInfo("/tmp/big.bin")).size).toBe(SIZE_MIB * MIB);
      expect((await sandbox.commands.run("sha256sum /tmp/big.bin", { timeoutMs: 0 })).stdout).toContain(expected);

      const received = createHash("sha256");
      for await (const chunk of await sandbox.files.read("/tmp/big.bin", { format: "stream" })) received.update(chunk);
      expect(received.digest("hex")).toBe(expected);
      await sandbox.files.remove("/tmp/big.bin");
    },
  },

  "a download that is given up leaves the sandbox well": async ({ sandbox }) => {
    await sandbox.commands.run("truncate -s 300M /tmp/sparse");
    for (let i = 0; i < 5; i++) {
      const stream = await sandbox.files.read("/tmp/sparse", { format: "stream" });
      const reader = stream.getReader();
      expect((await reader.read()).done).toBe(false);
      await reader.cancel();
    }
    expect((await sandbox.commands.run("rm /tmp/sparse; echo well")).stdout).toBe("well\n");
  },

  "ten files of 5 MB go up at once as a form": async ({ sandbox }) => {
    const blocks = [...megabytes(10)];
    const data = blocks.map((block) => new Blob([block, block, block, block, block]));
    await sandbox.files.write(data.map((blob, i) => ({ path: `/tmp/parts/${i}`, data: blob })));
    const sums = (await sandbox.commands.run("cd /tmp/parts && sha256sum 0 1 2 3 4 5 6 7 8 9; rm -r /tmp/parts"))
      .stdout;
    for (const [i, blob] of data.entries()) {
      const sum = createHash("sha256")
        .update(Buffer.from(await blob.arrayBuffer()))
        .digest("hex");
      expect(sums).toContain(`${sum}  ${i}\n`);
    }
  },
};
