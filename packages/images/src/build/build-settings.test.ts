import { GUEST_SHARE } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { type BuildRoom, nextMemorySize, resolveBuildSettings, trialDiskBytes } from "./build-settings.js";

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
/** A host that has so much to give, of which so much is free; what the guest takes of it comes on top. */
function roomOf(memoryBytes: number, freeBytes: number, freeDiskBytes = 5 * GIB, cpus = 4): BuildRoom {
  const guest = GUEST_SHARE.memoryBytes;
  return {
    host: { cpus, memoryBytes: memoryBytes + guest, pids: 32_768, diskBytes: 100 * GIB } as BuildRoom["host"],
    capacity: { memoryBytes: memoryBytes + guest, pids: 32_768, diskBytes: 100 * GIB },
    room: { memoryBytes: memoryBytes + guest, pids: 32_768, diskBytes: freeDiskBytes + GIB },
    reserved: { memoryBytes: memoryBytes - freeBytes, pids: 100, diskBytes: GIB },
  };
}
const host = roomOf(8 * GIB, 6 * GIB);

describe("resolveBuildSettings", () => {
  it("gives a build what is good for it, or what the host has", () => {
    expect(resolveBuildSettings(undefined, host)).toEqual({
      memoryBytes: 4 * GIB,
      memoryStartBytes: 512 * MIB,
      mostMemoryBytes: 8 * GIB,
      cpuMillis: 2000,
      pids: 4096,
      diskBytes: 5 * GIB,
      timeoutMs: 1_800_000,
      floorBytes: GIB,
      floorIsAsked: false,
      retryOnOom: false,
      network: true,
    });
    const small = roomOf(2 * GIB, GIB, 100 * GIB, 1.5);
    expect(resolveBuildSettings({}, small)).toMatchObject({
      memoryBytes: 921 * MIB,
      cpuMillis: 1500,
      diskBytes: 10 * GIB,
      floorBytes: 514 * MIB,
    });
    const tiny = roomOf(700 * MIB, 100 * MIB);
    expect(resolveBuildSettings({}, tiny)).toMatchObject({ memoryBytes: 512 * MIB, floorBytes: 177 * MIB });
  });

  it("waits for disk that others hold rather than begin with none", () => {
    expect(resolveBuildSettings({}, roomOf(8 * GIB, 6 * GIB, 0)).diskBytes).toBe(GIB);
    expect(resolveBuildSettings({}, roomOf(8 * GIB, 6 * GIB, -GIB)).diskBytes).toBe(MIB);
  });

  it("takes what is asked for", () => {
    const asked = {
      memoryMb: 6000,
      cpus: 0.5,
      diskMb: 100,
      timeoutS: 5,
      runtimeMemoryMb: 64,
      retryOnOom: true,
    } as const;
    expect(resolveBuildSettings({ ...asked, network: "off" }, host)).toEqual({
      memoryBytes: 6000 * MIB,
      memoryStartBytes: 6000 * MIB,
      mostMemoryBytes: 8 * GIB,
      cpuMillis: 500,
      pids: 4096,
      diskBytes: 100 * MIB,
      timeoutMs: 5000,
      floorBytes: 64 * MIB,
      floorIsAsked: true,
      retryOnOom: true,
      network: false,
    });
  });

  it.each([
    ["memoryMb", 8193, "8193 MiB were asked for, and this host has 8192 MiB of memory to give"],
    ["runtimeMemoryMb", 9000, "9000 MiB were asked for, and this host has 8192 MiB of memory to give"],
    ["cpus", 4.5, "4.5 CPUs were asked for, and this host has 4 CPUs"],
    ["diskMb", 7000, "7000 MiB were asked for, and this host has 6144 MiB of free disk"],
  ])("refuses more %s than the host has, with both numbers", (field, value, message) => {
    expect(() => resolveBuildSettings({ [field]: value }, host)).toThrow(
      expect.objectContaining({ code: "invalid_argument", message: `builder.${field}: ${message}` }),
    );
  });

  it("knows the next size to try", () => {
    expect(nextMemorySize(GIB, 8 * GIB)).toBe(2 * GIB);
    expect(nextMemorySize(5 * GIB, 8 * GIB)).toBe(8 * GIB);
    expect(nextMemorySize(8 * GIB, 8 * GIB)).toBeUndefined();
  });
});

describe("trialDiskBytes", () => {
  const settings = resolveBuildSettings({ diskMb: 4096 }, host);

  it("is the build's disk while that is free", () => {
    expect(trialDiskBytes(settings, host)).toBe(4 * GIB);
  });

  it("is what is free when the build has written some of its disk", () => {
    expect(trialDiskBytes(settings, roomOf(8 * GIB, 6 * GIB, 3 * GIB))).toBe(3 * GIB);
  });

  it("is not less than what a sandbox gets by itself, unless there never is so much", () => {
    expect(trialDiskBytes(settings, roomOf(8 * GIB, 6 * GIB, 0))).toBe(GIB);
    const { host: whole, capacity } = host;
    const full: BuildRoom = {
      host: whole,
      capacity,
      room: { ...host.room, diskBytes: 100 * MIB },
      reserved: host.reserved,
    };
    expect(trialDiskBytes(settings, full)).toBe(100 * MIB);
    expect(trialDiskBytes({ ...settings, diskBytes: 20 * MIB }, full)).toBe(20 * MIB);
  });
});
