/** Volumes of a real server, as their owners and those with a token reach them. */
import { randomBytes } from "node:crypto";
import { expect, onTestFinished } from "vitest";
import type { ServerInUse } from "../helpers/use-server.js";
import { type Client, createClient, JSON_TYPE, type TestSandbox } from "./server-client.js";

export interface TestVolume {
  readonly volumeID: string;
  readonly name: string;
  readonly token: string;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly bytes: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: what a body is like is what the tests are about.
  readonly body: any;
}

export interface ContentOptions {
  readonly body?: string | Uint8Array;
  readonly headers?: Record<string, string>;
}

export const freshName = () => `v-${randomBytes(6).toString("hex")}`;
export const file = (path: string) => `file?path=${encodeURIComponent(path)}`;
export const entry = (path: string) => `path?path=${encodeURIComponent(path)}`;
export const contentUrl = (
  server: Pick<ServerInUse, "url">,
  { volumeID }: Pick<TestVolume, "volumeID">,
  what: string,
) => `${server.url}/volumecontent/${volumeID}/${what}`;

/** Without a client it is the server's first key that asks. What is made is removed after the test. */
export function volumeClient(server: ServerInUse) {
  const first = (): Client => createClient(server, server.apiKey);

  /** With the volume's token, unless the headers say otherwise. */
  async function content(
    volume: Pick<TestVolume, "volumeID" | "token">,
    method: string,
    what: string,
    options: ContentOptions = {},
  ): Promise<Answer> {
    const response = await fetch(contentUrl(server, volume, what), {
      method,
      headers: { Authorization: `Bearer ${volume.token}`, ...options.headers },
      ...(options.body === undefined ? {} : { body: options.body }),
    });
    const bytes = Buffer.from(await response.arrayBuffer());
    const text = bytes.toString();
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    return { status: response.status, text, bytes, body: isJson ? JSON.parse(text) : undefined };
  }

  return {
    content,
    put: (volume: TestVolume, path: string, body: string | Uint8Array) => content(volume, "PUT", file(path), { body }),

    async createVolume(client = first(), name = freshName()): Promise<TestVolume> {
      const answer = await client.control({
        method: "POST",
        target: "/volumes",
        headers: [JSON_TYPE],
        body: JSON.stringify({ name }),
      });
      expect(answer.status, answer.text).toBe(201);
      const volume = JSON.parse(answer.text) as TestVolume;
      onTestFinished(async () => {
        await client.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });
      });
      return volume;
    },

    /** A sandbox that has it at /data. */
    async withVolume(volume: TestVolume, client = first()): Promise<TestSandbox> {
      const sandbox = await client.create({ volumeMounts: [{ name: volume.name, path: "/data" }] });
      onTestFinished(async () => {
        await client.control({ method: "DELETE", target: `/sandboxes/${sandbox.id}` });
      });
      return sandbox;
    },

    /** Sandboxes of the server's own, which serve contents: the API knows all others. */
    async keepers(): Promise<string[]> {
      const known = (await first().control({ target: "/v2/sandboxes?state=running,paused" })).text;
      return server.sandboxDirectories().filter((id) => !id.startsWith(".") && !known.includes(id));
    },
  };
}
