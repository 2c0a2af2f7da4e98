/**
 * The client of a Holdfast server. `fetch` and web streams only: it runs in Node 20 and in a browser alike.
 *
 *     const sandbox = await Sandbox.create();
 *     const { stdout, cause } = await sandbox.run("echo hello");
 */
export {
  type BuildInfo,
  type BuildLogLine,
  type CommandCause,
  type CommandEnding,
  type CommandInfo,
  type CommandLimits,
  type CreateSandboxBody,
  type ErrorCode,
  errorSpecs,
  type FileEvent,
  type FileInfo,
  HoldfastError,
  type HostInfo,
  type ImageInfo,
  type Incident,
  type MemoryReport,
  type Postmortem,
  type ResizeLimits,
  type SandboxCause,
  type SandboxEnding,
  type SandboxEvent,
  type SandboxInfo,
  type SandboxLimits,
  type SandboxList,
  type SandboxUsage,
  type SnapshotInfo,
  type Usage,
} from "@holdfast/protocol";
export { type BuilderOptions, Image } from "@holdfast/recipe";
export type { RetryOptions } from "./backoff.js";
export type { BuildOptions } from "./build.js";
export { Command, CommandInput, type Waiting } from "./command.js";
export type { EventsOptions } from "./events.js";
export { type FileOptions, Files, type ReadOptions, type WriteOptions } from "./files.js";
export { Holdfast, Sandboxes } from "./holdfast.js";
export { Images, type TransferOptions, type TransferProgress } from "./images.js";
export type { ListOptions, PageOptions } from "./list.js";
export type { OutputItem, OutputOffsets } from "./output.js";
export type { CommandLine, CommandOptions, RunOptions, RunResult, StartOptions, StreamedCommand } from "./run.js";
export { type CreateOptions, type Forks, type MemoryRange, Sandbox } from "./sandbox.js";
export type { ConnectionOptions, Content } from "./transport.js";
