/** A blob into a file, from wherever it was cut, until it is whole and, unless that is checked later, what its digest says. */
import type { Digest } from "@holdfast/recipe";
import { shortDigest } from "../layers/digest.js";
import { wrongContent } from "./errors.js";
import { CutError, type RegistryClient, type RegistryResponse } from "./http.js";
import type { PartialFile } from "./partial-file.js";
import { Retries } from "./retries.js";
import { YoungBuffers } from "./young-buffers.js";

export interface BlobToDownload {
  readonly repository: string;
  readonly digest: Digest;
  readonly sizeBytes: number;
}

export async function downloadBlob(
  client: RegistryClient,
  blob: BlobToDownload,
  file: PartialFile,
  options: {
    readonly signal?: AbortSignal | undefined;
    /** How much of it is there now: less than before if it had to begin again. */
    readonly onBytes?: ((bytes: number) => void) | undefined;
  } = {},
): Promise<void> {
  const { digest, sizeBytes } = blob;
  const what = `layer ${shortDigest(digest)} of ${blob.repository}`;
  const doing = `downloading ${what}`;
  const retries = new Retries(client.retry);
  // Bytes of an earlier process may have been spoilt, by a loss of power for instance: then all of it is fetched once more.
  let trusted = file.foundBytes === 0;
  for (;;) {
    const before = file.sizeBytes;
    options.onBytes?.(before);
    try {
      if (file.sizeBytes < sizeBytes) await fetchRest();
    } catch (reason) {
      if (!(reason instanceof CutError)) throw reason;
      if (file.sizeBytes > before) retries.reset();
      if (!(await retries.again({ afterMs: reason.afterMs, signal: options.signal }))) throw reason.failure;
      continue;
    }
    await file.flush();
    const actual = file.digest();
    if (actual === undefined || actual === digest) return;
    if (trusted) {
      throw wrongContent(client.registry, `${what}: its content is ${actual}, not ${digest} as promised`, {
        expected: digest,
        actual,
      });
    }
    trusted = true;
    await file.restart();
  }

  async function fetchRest(): Promise<void> {
    const start = file.sizeBytes;
    const response = await client.request({
      method: "GET",
      url: `/v2/${blob.repository}/blobs/${digest}`,
      scopes: [`repository:${blob.repository}:pull`],
      doing,
      expect: start > 0 ? [200, 206, 416] : [200],
      headers: start > 0 ? { range: `bytes=${start}-` } : {},
      signal: options.signal,
      retry: false,
    });
    if (start > 0 && !continues(response, start)) {
      // It does not do ranges.
      await file.restart();
      if (response.status !== 200) {
        response.message.destroy();
        throw client.cut({ doing, signal: options.signal }, cutShort());
      }
    }
    const buffers = new YoungBuffers();
    try {
      for await (const chunk of response.message as AsyncIterable<Buffer>) {
        if (file.sizeBytes + chunk.length > sizeBytes) {
          throw wrongContent(client.registry, `${what}: it is longer than the ${sizeBytes} bytes promised`, {
            sizeBytes,
          });
        }
        buffers.add(chunk.length);
        const waiting = file.append(chunk);
        if (waiting !== undefined) await waiting;
        options.onBytes?.(file.sizeBytes);
      }
    } catch (reason) {
      throw client.cut({ doing, signal: options.signal }, reason);
    }
    // A server that closes early without having said how much there would be.
    if (file.sizeBytes < sizeBytes) throw client.cut({ doing, signal: options.signal }, cutShort());
  }
}

function continues(response: RegistryResponse, start: number): boolean {
  const from = /^bytes (\d+)-/.exec(response.headers["content-range"] ?? "")?.[1];
  return response.status === 206 && from !== undefined && Number(from) === start;
}

function cutShort(): Error {
  return Object.assign(new Error("it ended too early"), { code: "ECONNRESET" });
}
