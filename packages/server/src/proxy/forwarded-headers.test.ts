import { describe, expect, test } from "vitest";
import { type ForwardedRequest, requestHeadersFor, responseHeadersFor } from "./forwarded-headers.js";

function headersOf(rawHeaders: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let index = 0; index < rawHeaders.length; index += 2) {
    headers[(rawHeaders[index] ?? "").toLowerCase()] = rawHeaders[index + 1] ?? "";
  }
  return headers;
}

function forwarded(rawHeaders: readonly string[], change: Partial<ForwardedRequest> = {}): Record<string, string> {
  return headersOf(
    requestHeadersFor({
      rawHeaders,
      headers: headersOf(rawHeaders),
      remoteAddress: "192.0.2.7",
      encrypted: false,
      port: 3000,
      maskHost: undefined,
      ...change,
    }),
  );
}

describe("requestHeadersFor", () => {
  test("says where the request came from, whatever the client claims", () => {
    const headers = forwarded(
      ["Host", "3000-i1.box.example", "X-Forwarded-For", "10.0.0.1", "Forwarded", "for=10.0.0.1"],
      { encrypted: true },
    );
    expect(headers).toEqual({
      host: "3000-i1.box.example",
      "x-forwarded-for": "192.0.2.7",
      "x-forwarded-host": "3000-i1.box.example",
      "x-forwarded-proto": "https",
      connection: "close",
    });
  });

  test("keeps secrets outside", () => {
    const headers = forwarded([
      ...["Host", "x", "X-Access-Token", "t", "E2B-Traffic-Access-Token", "t", "X-API-Key", "e2b_00"],
      ...["E2b-Sandbox-Id", "i1", "E2b-Sandbox-Port", "1", "Authorization", "Bearer e2b_00", "X-Mine", "1"],
    ]);
    expect(Object.keys(headers)).toEqual([
      "host",
      "x-mine",
      "x-forwarded-for",
      "x-forwarded-host",
      "x-forwarded-proto",
      "connection",
    ]);
  });

  test("leaves the keys of a server inside alone", () => {
    const headers = forwarded(["Host", "x", "X-API-Key", "mine", "Authorization", "Bearer mine"]);
    expect(headers).toMatchObject({ "x-api-key": "mine", authorization: "Bearer mine" });
  });

  test("drops what belongs to the connection, and what the connection names", () => {
    const headers = forwarded([
      ...["Host", "x", "Connection", "keep-alive, X-Hop, Content-Length, Host", "Keep-Alive", "timeout=5"],
      ...["X-Hop", "1", "Content-Length", "5", "TE", "trailers, deflate", "Proxy-Authorization", "Basic x"],
    ]);
    expect(headers).toMatchObject({ host: "x", "content-length": "5", te: "trailers", connection: "close" });
    expect(headers).not.toHaveProperty("x-hop");
    expect(headers).not.toHaveProperty("keep-alive");
    expect(headers).not.toHaveProperty("proxy-authorization");
  });

  test("masks the host", () => {
    const mask = `localhost:${"$"}{PORT}`;
    expect(forwarded(["Host", "a.example"], { maskHost: mask })).toMatchObject({
      host: "localhost:3000",
      "x-forwarded-host": "a.example",
    });
    expect(forwarded(["Host", "a.example"], { maskHost: "evil\r\nX: 1" })).toMatchObject({ host: "a.example" });
  });

  test("asks for another protocol when the client did", () => {
    const headers = forwarded(["Host", "x", "Connection", "Upgrade", "Upgrade", "websocket"], { upgrade: "websocket" });
    expect(headers).toMatchObject({ connection: "Upgrade", upgrade: "websocket" });
  });
});

describe("responseHeadersFor", () => {
  const rawHeaders = [
    ...["Connection", "Upgrade, X-Hop", "Upgrade", "websocket", "X-Hop", "1", "Transfer-Encoding", "chunked"],
    ...["Set-Cookie", "a=1", "Set-Cookie", "b=2", "Content-Length", "2"],
  ];
  const response = { rawHeaders, headers: headersOf(rawHeaders) };

  test("keeps cookies apart and drops what belongs to the connection", () => {
    expect(responseHeadersFor(response)).toEqual(["Set-Cookie", "a=1", "Set-Cookie", "b=2", "Content-Length", "2"]);
  });

  test("keeps the upgrade of a 101", () => {
    expect(responseHeadersFor(response, { keepUpgrade: true }).slice(0, 4)).toEqual([
      ...["Connection", "Upgrade, X-Hop", "Upgrade", "websocket"],
    ]);
  });
});
