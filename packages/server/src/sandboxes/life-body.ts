/** The engine's side of one sandbox's life, while it has one: what runs or is frozen, and the commands in it. */
import { join } from "node:path";
import type { Admission, Sandbox } from "@holdfast/engine";
import { HoldfastError, type SandboxEnding } from "@holdfast/protocol";
import type { SandboxRow } from "../store/store.js";
import { DeliveredOffsets } from "./delivered-offsets.js";
import { type LifeParts, tellOfMemory } from "./life-parts.js";
import { type LastWords, SandboxCommands } from "./live-commands.js";
import { endedError } from "./postmortem.js";

export class LifeBody {
  readonly #parts: LifeParts;
  readonly #row: () => SandboxRow;
  readonly #onEnded: (sandbox: Sandbox, ending: SandboxEnding) => void;
  readonly #delivered: DeliveredOffsets;
  #sandbox: Sandbox | undefined;
  #commands: SandboxCommands | undefined;
  /** Its commands can be asked about once it is thawed. */
  #commandsUnknown = false;

  /** `onEnded` is told of an end that is not our doing. */
  constructor(parts: LifeParts, row: () => SandboxRow, onEnded: (sandbox: Sandbox, ending: SandboxEnding) => void) {
    this.#parts = parts;
    this.#row = row;
    this.#onEnded = onEnded;
    this.#delivered = new DeliveredOffsets(join(parts.directory, row().id));
  }

  /** Running or frozen. */
  get sandbox(): Sandbox | undefined {
    return this.#sandbox;
  }

  set(sandbox: Sandbox): void {
    const { store, events, log, admitCommand } = this.#parts;
    const { keyId } = this.#row();
    this.#sandbox = sandbox;
    const delivered = this.#delivered;
    this.#commands = new SandboxCommands({ sandbox, keyId, store, events, delivered, log, admitCommand });
    void sandbox.ended.then((ending) => {
      if (this.#sandbox !== sandbox) return;
      this.#sandbox = undefined;
      this.#onEnded(sandbox, ending);
    });
    tellOfMemory(this.#parts, this.#row(), sandbox);
  }

  /** Its end is our doing from here on: nobody need be told. */
  letGo(): Sandbox | undefined {
    const sandbox = this.#sandbox;
    this.#sandbox = undefined;
    return sandbox;
  }

  alive(): { readonly sandbox: Sandbox; readonly commands: SandboxCommands } {
    if (this.#sandbox === undefined || this.#commands === undefined) throw endedError(this.#row());
    return { sandbox: this.#sandbox, commands: this.#commands };
  }

  async freeze(): Promise<{ readonly releasedBytes: number; readonly heldBytes: number }> {
    const { sandbox } = this.alive();
    await sandbox.freeze();
    const releasedBytes = await sandbox.reclaim();
    return { releasedBytes, heldBytes: (await sandbox.stats()).memoryBytes };
  }

  async thaw(admission: Admission): Promise<void> {
    await this.alive().sandbox.thaw(admission);
    if (this.#commandsUnknown) await this.adoptCommands();
  }

  async stop(by: string): Promise<void> {
    const { sandbox } = this.alive();
    this.#sandbox = undefined;
    try {
      await sandbox.stop(by);
    } catch (error) {
      this.#sandbox = sandbox;
      throw error;
    }
    await this.settleCommands();
  }

  /** It was found frozen, and what is frozen does not answer. */
  adoptCommandsLater(): void {
    this.#commandsUnknown = true;
  }

  /** The sandbox is worth more than what is known about its commands. */
  async adoptCommands(): Promise<void> {
    this.#commandsUnknown = false;
    const failed = "the commands of a sandbox could not all be taken over";
    await this.#commands?.adopt().catch((error: unknown) => this.complain(error, failed));
  }

  async lastWords(options: { readonly askGuest: boolean }): Promise<readonly LastWords[]> {
    return (await this.#commands?.lastWords(options)) ?? [];
  }

  async settleCommands(): Promise<void> {
    const failed = "how the commands of a sandbox ended could not all be recorded";
    await this.#commands?.settled().catch((error: unknown) => this.complain(error, failed));
  }

  /** It runs on, for the next server. */
  release(): void {
    this.#commands?.release();
    this.#delivered.close();
  }

  /** Nothing of it is asked for any more. */
  forget(): void {
    this.#delivered.remove();
  }

  complain(error: unknown, what: string): void {
    this.#parts.log.error({ sandbox: this.#row().id, error: HoldfastError.from(error).message }, what);
  }
}
