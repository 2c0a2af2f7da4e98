import type { FileEntry } from "@holdfast/engine";
import { describe, expect, test } from "vitest";
import { FileType } from "../gen/filesystem.js";
import { entryInfo } from "./entry-info.js";

const FILE: FileEntry = {
  name: "f",
  path: "/home/user/f",
  type: "file",
  sizeBytes: 4,
  mode: 0o4755,
  uid: 1000,
  gid: 1000,
  owner: "user",
  group: "user",
  modifiedNs: 1_500_000_000n,
  link: undefined,
  attributes: {},
};

describe("a file as E2B describes it", () => {
  test("has its permission bits as a number and all of its mode as text", () => {
    expect(entryInfo(FILE)).toEqual({
      name: "f",
      type: FileType.FILE,
      path: "/home/user/f",
      size: 4n,
      mode: 0o755,
      permissions: "urwxr-xr-x",
      owner: "user",
      group: "user",
      modifiedTime: { seconds: 1n, nanos: 500_000_000 },
      metadata: {},
    });
  });

  test("has a size above 0 if it is a directory, whatever the disk counts", () => {
    expect(entryInfo({ ...FILE, type: "directory", sizeBytes: 0 }).size).toBe(4096n);
    expect(entryInfo({ ...FILE, type: "directory", sizeBytes: 12 }).size).toBe(12n);
    expect(entryInfo({ ...FILE, sizeBytes: 0 }).size).toBe(0n);
  });

  test("has a time before 1970 if it claims one", () => {
    const modifiedNs = BigInt.asUintN(64, -500_000_000n);
    expect(entryInfo({ ...FILE, modifiedNs }).modifiedTime).toEqual({ seconds: -1n, nanos: 500_000_000 });
  });

  test("shows the attributes that E2B set, and no others", () => {
    const attributes = {
      "user.e2b.author": Buffer.from("me"),
      "user.other": Buffer.from("x"),
      "user.e2b.": Buffer.from(""),
    };
    expect(entryInfo({ ...FILE, attributes }).metadata).toEqual({ author: "me", "": "" });
  });

  const link = {
    target: "d",
    resolved: "/home/user/d",
    targetType: "directory",
    targetMode: 0o1777,
    targetSizeBytes: 4096,
  };

  test("is what it points to if it is a link, with permissions of its own", () => {
    const info = entryInfo({ ...FILE, type: "symlink", mode: 0o777, link: link as FileEntry["link"] });
    expect(info).toMatchObject({ type: FileType.DIRECTORY, mode: 0o777, permissions: "Lrwxrwxrwx", size: 4n });
    expect(info.symlinkTarget).toBe("/home/user/d");
  });

  test("is a link if it leads nowhere", () => {
    const nowhere = {
      target: "gone",
      resolved: undefined,
      targetType: undefined,
      targetMode: undefined,
      targetSizeBytes: undefined,
    };
    const info = entryInfo({ ...FILE, type: "symlink", mode: 0o777, link: nowhere });
    expect(info).toMatchObject({ type: FileType.SYMLINK, symlinkTarget: "gone" });
  });
});
