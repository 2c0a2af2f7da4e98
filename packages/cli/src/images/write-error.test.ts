import { HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { writeError } from "./write-error.js";

const HINT = "Free some space there, or write it somewhere else.";

test("a full file system is told of as the place where the archive goes", () => {
  const raw = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC", syscall: "write" });
  expect(writeError(raw, "/mnt/a.tar")).toMatchObject({ code: "no_space", hint: HINT });
  const ours = new HoldfastError("no_space", "writing /mnt/a.tar: no space left", { hint: "`holdfast image prune`" });
  expect(writeError(ours, "/mnt/a.tar")).toMatchObject({ code: "no_space", message: ours.message, hint: HINT });
});

test("what happened elsewhere stays as it is", () => {
  const scratch = new HoldfastError("no_space", "compressing the largest layer needs more", { hint: "--scratch" });
  expect(writeError(scratch, "/mnt/a.tar")).toBe(scratch);
  const other = new Error("no file system was asked");
  expect(writeError(other, "/mnt/a.tar")).toBe(other);
});
