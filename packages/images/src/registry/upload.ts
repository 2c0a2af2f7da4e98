/** A blob to a registry: not at all if it is there, else in one stream that goes on, or begins again, after a cut. */
import type { Readable } from "node:stream";
import type { Digest } from "@holdfast/recipe";
import { shortDigest } from "../layers/digest.js";
import { registryFailed } from "./errors.js";
import { CutError, type RegistryClient, type RegistryResponse } from "./http.js";
import { Retries } from "./retries.js";

export interface BlobToUpload {
  /** A function if it is known only when the last byte has been sent. */
  readonly digest: Digest | (() => Promise<Digest>);
  /** For messages. Absent: its digest. */
  readonly what?: string | undefined;
  readonly sizeBytes: number;
  /** Its bytes from there to the end; called again for every try. */
  open(start: number): Readable | Uint8Array;
}

export interface UploadOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

export interface UploadReport {
  readonly how: "present" | "mounted" | "uploaded";
  /** Including what had to be sent twice. */
  readonly sentBytes: number;
}

/** Registries that keep their blobs elsewhere copy them when they have everything. */
const COMMIT_TIMEOUT_MS = 10 * 60 * 1000;
const CANCEL_TIMEOUT_MS = 5000;

export function pushScopes(repository: string, mountFrom?: string): string[] {
  const scopes = [`repository:${repository}:pull,push`];
  if (mountFrom !== undefined) scopes.push(`repository:${mountFrom}:pull`);
  return scopes;
}

export async function hasBlob(
  client: RegistryClient,
  repository: string,
  digest: Digest,
  signal?: AbortSignal,
): Promise<boolean> {
  const response = await client.request({
    method: "HEAD",
    url: `/v2/${repository}/blobs/${digest}`,
    scopes: pushScopes(repository),
    doing: `looking for ${shortDigest(digest)} in ${repository}`,
    expect: [200, 404],
    signal,
  });
  await client.discard(response);
  return response.status === 200;
}

/** What another repository of the same registry holds, without sending it. Where to upload it if that does not work. */
export async function mountBlob(
  client: RegistryClient,
  repository: string,
  blob: { readonly digest: Digest; readonly from: string },
  signal?: AbortSignal,
): Promise<boolean> {
  const query = new URLSearchParams({ mount: blob.digest, from: blob.from });
  const response = await client.request({
    method: "POST",
    url: `/v2/${repository}/blobs/uploads/?${query}`,
    scopes: pushScopes(repository, blob.from),
    doing: `mounting ${shortDigest(blob.digest)} of ${blob.from} in ${repository}`,
    // Who may not read the other repository is refused by some; it is then sent like any other.
    expect: [201, 202, 400, 401, 403, 404, 405],
    body: { sizeBytes: 0, open: () => new Uint8Array() },
    signal,
  });
  await client.discard(response);
  if (response.status === 202) await cancelUpload(client, repository, locationOf(client, response, "mounting a blob"));
  return response.status === 201;
}

export async function uploadBlob(
  client: RegistryClient,
  repository: string,
  blob: BlobToUpload,
  options: UploadOptions = {},
): Promise<UploadReport> {
  const { sizeBytes } = blob;
  const { signal } = options;
  let digest = typeof blob.digest === "string" ? blob.digest : undefined;
  const what = blob.what ?? (digest === undefined ? "a blob" : shortDigest(digest));
  const doing = `uploading ${what} to ${repository}`;
  const scopes = pushScopes(repository);
  const empty = { sizeBytes: 0, open: () => new Uint8Array() };
  const retries = new Retries(client.retry);
  let location: URL | undefined;
  let sentBytes = 0;
  let start = 0;
  try {
    for (;;) {
      const before = start;
      try {
        location ??= await begin();
        if (start < sizeBytes || sizeBytes === 0) await send();
        await commit();
        location = undefined;
        return { how: "uploaded", sentBytes };
      } catch (reason) {
        if (!(reason instanceof CutError)) throw reason;
        const resumed: { location: URL; start: number } | undefined =
          location === undefined ? undefined : await resume(location);
        if (resumed !== undefined && resumed.start > before) retries.reset();
        if (!(await retries.again({ afterMs: reason.afterMs, signal }))) throw reason.failure;
        // The answer to the last request may be all that was lost.
        if (digest !== undefined && (await hasBlob(client, repository, digest, signal))) {
          return { how: "uploaded", sentBytes };
        }
        // Without the last byte there is no digest: then there has to be something left to send.
        const goesOn = resumed !== undefined && (digest !== undefined || resumed.start < sizeBytes);
        location = goesOn ? resumed.location : undefined;
        start = goesOn ? resumed.start : 0;
        options.onBytes?.(start);
      }
    }
  } finally {
    if (location !== undefined) await cancelUpload(client, repository, location);
  }

  async function begin(): Promise<URL> {
    start = 0;
    const response = await client.request({
      method: "POST",
      url: `/v2/${repository}/blobs/uploads/`,
      scopes,
      doing,
      expect: [202],
      body: empty,
      signal,
    });
    await client.discard(response);
    return locationOf(client, response, doing);
  }

  async function send(): Promise<void> {
    const response = await client.request({
      method: "PATCH",
      url: location as URL,
      scopes,
      doing,
      expect: [202, 204],
      headers: {
        "content-type": "application/octet-stream",
        ...(start === 0 ? {} : { "content-range": `${start}-${sizeBytes - 1}` }),
      },
      body: { sizeBytes: sizeBytes - start, open: () => counted(blob.open(start)) },
      signal,
      answerTimeoutMs: COMMIT_TIMEOUT_MS,
      retry: false,
    });
    await client.discard(response);
    start = sizeBytes;
    location = locationOf(client, response, doing, location);
  }

  async function commit(): Promise<void> {
    digest ??= await (blob.digest as () => Promise<Digest>)();
    // Put on as text: the registry may have signed the rest as it is.
    const { href } = location as URL;
    const response = await client.request({
      method: "PUT",
      url: new URL(`${href}${href.includes("?") ? "&" : "?"}digest=${encodeURIComponent(digest)}`),
      scopes,
      doing,
      expect: [201, 204],
      body: empty,
      signal,
      answerTimeoutMs: COMMIT_TIMEOUT_MS,
      retry: false,
    });
    await client.discard(response);
  }

  /** Where it goes on, if the registry has kept what came before the cut. */
  async function resume(at: URL): Promise<{ location: URL; start: number } | undefined> {
    try {
      const response = await client.request({ method: "GET", url: at, scopes, doing, expect: [202, 204], signal });
      await client.discard(response);
      const last = Number(/^(?:bytes=)?0-(\d{1,15})$/.exec(response.headers.range ?? "")?.[1]);
      // `0-0` is what nothing at all looks like, too.
      if (!(last > 0 && last < sizeBytes)) return undefined;
      return { location: locationOf(client, response, doing, at), start: last + 1 };
    } catch (reason) {
      client.assertNotCanceled(signal);
      if (reason instanceof CutError || isRegistryFailure(reason)) return undefined;
      throw reason;
    }
  }

  function counted(content: Readable | Uint8Array): Readable | Uint8Array {
    let bytes = start;
    const count = (length: number): void => {
      bytes += length;
      sentBytes += length;
      options.onBytes?.(bytes);
    };
    if (content instanceof Uint8Array) count(content.length);
    else content.on("data", (chunk: Uint8Array) => count(chunk.length));
    return content;
  }
}

function isRegistryFailure(reason: unknown): boolean {
  return (reason as { code?: unknown } | null)?.code === "registry_failed";
}

function locationOf(client: RegistryClient, response: RegistryResponse, doing: string, otherwise?: URL): URL {
  const { location } = response.headers;
  if (location !== undefined) return client.resolve(location, response.url, doing);
  if (otherwise !== undefined) return otherwise;
  throw registryFailed({ registry: client.registry, doing, problem: "it did not say where to" });
}

/** So that the registry need not keep what nobody will finish. It does so by itself in the end. */
async function cancelUpload(client: RegistryClient, repository: string, location: URL): Promise<void> {
  try {
    const response = await client.request({
      method: "DELETE",
      url: location,
      scopes: pushScopes(repository),
      doing: `giving up an upload to ${repository}`,
      expect: [202, 204, 404],
      signal: AbortSignal.timeout(CANCEL_TIMEOUT_MS),
      retry: false,
    });
    await client.discard(response);
  } catch {
    // There was a reason to give up, and that one is told.
  }
}
