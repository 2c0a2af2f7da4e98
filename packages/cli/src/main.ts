#!/usr/bin/env -S node --max-old-space-size=1024
/** The `holdfast` command. */
import { readFileSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import { CommanderError } from "commander";
import { createProgram } from "./program.js";
import { outputFailure, watchOutput } from "./text/lost-output.js";
import { noteError } from "./text/notes.js";

/** Our own failure, and a call that makes no sense: what env(1), timeout(1) and docker use. */
const OUR_FAILURE = 125;
/** 128 + SIGINT: whoever was at the keyboard has ended it. */
const INTERRUPTED = 130;

function readVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };
  return manifest.version;
}

async function main(): Promise<number> {
  let exitCode = 0;
  const program = createProgram(readVersion(), (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(process.argv);
    return exitCode;
  } catch (reason) {
    // Commander has said what was wrong, or printed the help that was asked for.
    if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : OUR_FAILURE;
    noteError(reason);
    return reason instanceof HoldfastError && reason.code === "canceled" ? INTERRUPTED : OUR_FAILURE;
  }
}

watchOutput();
let exitCode = await main();
// What waits to be written is written first; open handles (stdin, say) do not keep us.
const lost = await outputFailure();
if (lost !== undefined && exitCode === 0) {
  noteError(lost);
  exitCode = OUR_FAILURE;
}
process.stderr.write("", () => process.exit(exitCode));
