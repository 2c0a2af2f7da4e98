/** Steps reach what the operator lets them reach, and nothing if they are told so. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { outputOf, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

const { network: _, ...ONLINE } = SMALL_BUILDER;
/** Of this host, but not its loopback, which each sandbox has of its own. */
const ADDRESS = Object.values(networkInterfaces())
  .flat()
  .find((address) => address?.family === "IPv4" && !address.internal)?.address;

let server: Server;

beforeEach(async () => {
  server = createServer((_request, response) => response.end("hello from the host\n"));
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
});
afterEach(() => new Promise<void>((resolve) => void server.close(() => resolve())));

const fetchFrom = (address: string) =>
  run(
    String.raw`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 ${address} ${(server.address() as AddressInfo).port} | grep hello || echo unreachable`,
  );

describe.skipIf(ADDRESS === undefined)("a build whose steps may reach one address", () => {
  const use = useBuilds({ network: { deny: ["0.0.0.0/0"], allow: [`${ADDRESS}/32`] } });

  it("reaches it, and no other", async () => {
    const build = await use.start([fetchFrom(ADDRESS ?? ""), fetchFrom("127.0.0.1"), fetchFrom("10.99.0.1")], {
      builder: ONLINE,
    });
    await build.image;
    expect((await outputOf(build)).filter((line) => !line.startsWith("nc:"))).toEqual([
      "hello from the host",
      "unreachable",
      "unreachable",
    ]);
  });

  it("reaches nothing without a network", async () => {
    const build = await use.start([fetchFrom(ADDRESS ?? "")], { builder: { ...ONLINE, network: "off" } });
    await build.image;
    expect(await outputOf(build)).toContain("unreachable");
  });
});
