import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { validate } from "../http/validate.js";
import { createBodySchema, createRequestFrom } from "./create-request.js";

const schema = createBodySchema({ maxTimeoutSeconds: 3600 });

function request(body: unknown) {
  return createRequestFrom(validate(schema, body, "body"), {
    template: "base",
    limits: {},
    defaultTimeoutSeconds: 300,
  });
}

function refusal(body: unknown): HoldfastError {
  try {
    request(body);
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

describe("the body of a create", () => {
  it("needs nothing but a template", () => {
    expect(request({ templateID: "base" })).toEqual({
      template: "base",
      timeoutMs: 300_000,
      onTimeout: "kill",
      autoResume: false,
      limits: {},
      env: {},
      metadata: {},
      network: { allowInternetAccess: null, allowPublicTraffic: true, settings: null },
    });
  });

  it("may be what the older SDK sends", () => {
    const body = { templateID: "base", timeout: 60, secure: true, allow_internet_access: true, autoPause: false };
    expect(request(body)).toMatchObject({ timeoutMs: 60_000, network: { allowInternetAccess: true } });
  });

  it("says what happens when the time is up", () => {
    const templateID = "base";
    expect(request({ templateID, autoPause: true }).onTimeout).toBe("pause");
    expect(request({ templateID, autoPause: true, autoPauseMemory: false }).onTimeout).toBe("stop");
    expect(request({ templateID, autoPause: true, autoResume: { enabled: true } })).toMatchObject({
      onTimeout: "pause",
      autoResume: true,
    });
  });

  it.each([
    [{}, "templateID"],
    [{ templateID: "" }, "templateID"],
    [{ templateID: 1 }, "templateID"],
    [{ templateID: "base", timeout: 0 }, "timeout"],
    [{ templateID: "base", timeout: 1.5 }, "timeout"],
    [{ templateID: "base", timeout: "60" }, "timeout"],
    [{ templateID: "base", timeout: 3601 }, "timeout"],
    [{ templateID: "base", metadata: { a: 1 } }, "metadata.a"],
    [{ templateID: "base", metadata: [] }, "metadata"],
    [{ templateID: "base", envVars: { "A=B": "1" } }, "envVars.A=B"],
    [{ templateID: "base", envVars: { A: "x\0y" } }, "envVars.A"],
    [{ templateID: "base", envVars: { A: "x".repeat(200_000) } }, "envVars.A"],
    [{ templateID: "base", secure: "yes" }, "secure"],
    [{ templateID: "base", autoResume: true }, "autoResume"],
    [{ templateID: "base", autoPauseMemory: false }, "autoPauseMemory"],
    [
      { templateID: "base", autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } },
      "autoResume.enabled",
    ],
    [{ templateID: "base", network: { allowOut: ["1.2.3"] } }, "network.allowOut[0]"],
    [{ templateID: "base", cpuCount: 4 }, "cpuCount"],
    [{ templateID: "base", volumeMounts: [{ name: "v", path: "v" }] }, "volumeMounts[0].path"],
    [null, "body"],
    [[], "body"],
    ["base", "body"],
  ])("is refused by name: %j", (body, field) => {
    const error = refusal(body);
    expect(error.code).toBe("invalid_argument");
    expect(error.details.field).toBe(field);
    expect(error.message.startsWith(`${field}: expected `)).toBe(true);
  });

  it("is not honoured by halves", () => {
    const error = refusal({ templateID: "base", iam: { tokens: { aws: { audience: "a", tokenType: "jwt" } } } });
    expect(error.code).toBe("not_implemented");
    expect(error.message).toBe("iam is not implemented by this server yet");
  });

  it("may say what a client starts its MCP gateway with", () => {
    expect(request({ templateID: "base", mcp: { exa: { apiKey: "x" } } })).toMatchObject({ template: "base" });
  });

  it("may hold empty forms of what is not there", () => {
    expect(request({ templateID: "base", volumeMounts: [], mcp: null, iam: {}, network: null })).toMatchObject({
      template: "base",
    });
  });
});
