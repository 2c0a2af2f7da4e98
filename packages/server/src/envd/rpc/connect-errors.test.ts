import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorCode, HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { connectErrorFrom } from "./connect-errors.js";

describe("an error on its way to the client", () => {
  test.each<[ErrorCode, Code]>([
    ["file_not_found", Code.NotFound],
    ["command_not_found", Code.NotFound],
    ["file_exists", Code.AlreadyExists],
    ["file_wrong_type", Code.InvalidArgument],
    ["command_failed_to_start", Code.InvalidArgument],
    ["user_not_found", Code.Unauthenticated],
    ["no_space", Code.ResourceExhausted],
    ["sandbox_ended", Code.Unavailable],
    ["guest_fault", Code.Internal],
  ])("%s has the code %i and its own words", (code, expected) => {
    const error = connectErrorFrom(new HoldfastError(code, "what happened"));
    expect(error.code).toBe(expected);
    expect(error.rawMessage).toBe("what happened");
  });

  test("carries the hint as a sentence of its own", () => {
    const error = connectErrorFrom(new HoldfastError("no_space", "the disk is full", { hint: "Remove something." }));
    expect(error.rawMessage).toBe("the disk is full. Remove something.");
  });

  test("says nothing of what went wrong inside the server", () => {
    const error = connectErrorFrom(new Error("ENOENT: /var/lib/holdfast/secret"));
    expect(error.code).toBe(Code.Internal);
    expect(error.message).not.toContain("secret");
  });

  test("is no fault of ours if the kernel refused for the state of a file", () => {
    const busy = new HoldfastError("guest_fault", "path '/' cannot be removed", { details: { errno: "EBUSY" } });
    expect(connectErrorFrom(busy).code).toBe(Code.FailedPrecondition);
  });

  test("stays what it is if it is one of Connect's", () => {
    const error = new ConnectError("gone", Code.DataLoss);
    expect(connectErrorFrom(error)).toBe(error);
  });
});
