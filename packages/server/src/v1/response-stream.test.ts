import { connect } from "node:net";
import { fastify } from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { OpenStreams, type ResponseStream } from "./response-stream.js";

async function useStream(whenStopping: "end" | "cut", send: (stream: ResponseStream) => Promise<void>) {
  const streams = new OpenStreams();
  const app = fastify({ forceCloseConnections: true });
  let finished: () => void = () => {};
  const done = new Promise<void>((resolve) => {
    finished = resolve;
  });
  app.get("/", async (_request, reply) => {
    const stream = streams.prepare(reply, whenStopping);
    stream.begin({ "content-type": "text/plain" });
    await send(stream).finally(finished);
  });
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  onTestFinished(() => app.close());
  return { url, streams, done };
}

test("a client that does not read is written to only as far as there is room", async () => {
  const piece = Buffer.alloc(64 * 1024);
  let written = 0;
  const { url, done } = await useStream("end", async (stream) => {
    while (await stream.write(piece)) written += piece.length;
  });
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  socket.on("error", () => {});
  socket.pause();
  socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  let before = -1;
  while (written !== before) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  // What lies in the kernel's buffers, and no more, however long one waits.
  expect(written).toBeLessThan(32 * 1024 * 1024);
  socket.destroy();
  await done;
});

test("a server that stops ends a stream that says its own last word", async () => {
  const { url, streams } = await useStream("end", async (stream) => {
    await stream.write("one\n");
    await new Promise((resolve) => stream.closed.addEventListener("abort", resolve));
    expect(await stream.write("two\n")).toBe(false);
  });
  const response = await fetch(url);
  setTimeout(() => streams.closeAll(), 20);
  expect(await response.text()).toBe("one\n");
});

test("a server that stops breaks off a stream that would look complete", async () => {
  const { url, streams } = await useStream("cut", async (stream) => {
    await stream.write("one\n");
    await new Promise((resolve) => stream.closed.addEventListener("abort", resolve));
  });
  const response = await fetch(url);
  setTimeout(() => streams.closeAll(), 20);
  await expect(response.text()).rejects.toThrow();
});

test("something is said when there is nothing to say", async () => {
  const { url } = await useStream("end", async (stream) => {
    stream.keepAlive(".", 5);
    await new Promise((resolve) => setTimeout(resolve, 60));
    stream.end();
  });
  expect(await (await fetch(url)).text()).toMatch(/^\.{2,}$/);
});
