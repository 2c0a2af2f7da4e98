/** What the commands about images have in common: the host is opened, told how far it is, and closed; Ctrl-C ends the work. */
import { HoldfastError } from "@holdfast/protocol";
import { untilInterrupted } from "../client/interrupt.js";
import { nameFlag } from "../run/name-flag.js";
import { ProgressLine, TransferText } from "../text/progress-line.js";
import type { ImageHost, MoveOptions } from "./image-host.js";
import { type ImageHostFlags, type OpenHostOptions, openHost } from "./open-host.js";

/** What the fields are called on these commands' lines. */
const WORDS = [
  [/^image\b/, "NAME"],
  [/^to\b/, "--output"],
  [/^format\b/, "--format"],
  [/^compression\b/, "--compress"],
  [/^username\b/, "--username"],
  [/^password\b/, "--password-stdin"],
  [/^reference\b/, "REFERENCE"],
  [/^(container|path)\b/, "TARGET"],
] as const;

export async function withHost<T>(
  flags: ImageHostFlags,
  work: (host: ImageHost, options: MoveOptions) => Promise<T>,
  options: OpenHostOptions = {},
): Promise<T> {
  const { signal, release } = untilInterrupted();
  const line = new ProgressLine();
  const transfer = new TransferText();
  const onProgress: MoveOptions["onProgress"] = (progress) => {
    if (!line.isVisible) return;
    transfer.add(progress);
    line.show(transfer.text());
  };
  let host: ImageHost | undefined;
  try {
    host = await openHost(flags, options);
    return await work(host, { signal, onProgress });
  } catch (error) {
    // What stopped the work is the reason; how it ended is only what came of it.
    throw nameFlag(signal.reason instanceof HoldfastError ? signal.reason : error, WORDS);
  } finally {
    line.clear();
    await host?.close();
    release();
  }
}
