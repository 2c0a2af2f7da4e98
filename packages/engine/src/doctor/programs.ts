/** The programs an engine runs on the host's side. */
import { statSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import { findProgram } from "../host/find-program.js";
import { Launcher } from "../host/launcher.js";
import { tryProgram } from "../host/run-program.js";
import { isAtLeast } from "./platform.js";
import type { DoctorRow } from "./row.js";

const SETUID = 0o4000;
const HOST_TOOLS = ["flock", "mount", "umount"];

export async function inspectPrograms(): Promise<DoctorRow[]> {
  return [await bubblewrapRow(), launcherRow(), toolsRow(), imageToolsRow()];
}

async function bubblewrapRow(): Promise<DoctorRow> {
  const name = "bubblewrap";
  const path = findProgram("bwrap");
  if (path === undefined) {
    return { name, state: "missing", by: "not installed", remedy: "apt-get install bubblewrap", required: true };
  }
  const version = /\d+\.\d+(\.\d+)?/.exec((await tryProgram(path, ["--version"])).stdout)?.[0] ?? "unknown";
  const by = `${path}, version ${version}`;
  if (!isAtLeast(version, [0, 8])) {
    return { name, state: "missing", by, remedy: "Install bubblewrap 0.8 or later.", required: true };
  }
  if ((statSync(path).mode & SETUID) !== 0) {
    // A setuid bubblewrap takes no user namespace from us, and is a way to root for every user of the host.
    return { name, state: "missing", by: `${by}, setuid`, remedy: `chmod u-s ${path}`, required: true };
  }
  return { name, state: "ok", by, required: true };
}

function launcherRow(): DoctorRow {
  const name = "launcher and guest";
  try {
    const { path, guestPath } = new Launcher();
    const size = Math.round(statSync(guestPath).size / 1024);
    return { name, state: "ok", by: `${path}; the guest is ${size} KiB, static`, required: true };
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    return { name, state: "missing", by: message, remedy: hint ?? "npm run setup", required: true };
  }
}

function toolsRow(): DoctorRow {
  const name = "host tools";
  const missing = HOST_TOOLS.filter((tool) => findProgram(tool) === undefined);
  if (missing.length === 0) return { name, state: "ok", by: HOST_TOOLS.join(", "), required: true };
  const remedy = "apt-get install util-linux mount";
  return { name, state: "missing", by: `no ${missing.join(", ")}`, remedy, required: true };
}

/** Only images need them. */
function imageToolsRow(): DoctorRow {
  const name = "image tools";
  const tools = { mmdebstrap: "builds the base image", zstd: "reads layers compressed with it" };
  const missing = Object.keys(tools).filter((tool) => findProgram(tool) === undefined);
  if (missing.length === 0) return { name, state: "ok", by: Object.keys(tools).join(", "), required: false };
  const by = `no ${missing.map((tool) => `${tool}, which ${tools[tool as keyof typeof tools]}`).join("; no ")}`;
  return { name, state: "weak", by, remedy: `apt-get install ${missing.join(" ")}`, required: false };
}
