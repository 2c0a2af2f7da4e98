/**
 * An image, declared step by step. Immutable: every method gives a new one, so that several images can go on from one.
 * What is wrong is refused at once; files are read when it is resolved.
 *
 *     const image = Image.base().aptInstall(["cmake"]).addLocalDir("./src", "/app").workdir("/app").runCommands("make");
 */
import type { DockerfileOptions, Draft, DraftStep } from "./draft.js";
import { defined, type Members, optional, readList, readObject, readText, refuse } from "./fields.js";
import { parseBuilderOptions } from "./parse-builder-options.js";
import { parseBase, parseStep, readCopyOptions, readEnvironment } from "./parse-step.js";
import { readTarget } from "./paths.js";
import { parseStartCommand, type ReadyCondition, readyWhenFrom } from "./ready-when.js";
import type { BuilderOptions, CopyOptions } from "./recipe.js";
import type { ExternalBase } from "./recipe-hash.js";
import { type ResolvedImage, resolveDraft } from "./resolve-draft.js";

export interface LocalDirOptions extends CopyOptions {
  /** Instead of the directory's `.holdfastignore` or `.dockerignore`. */
  readonly ignoreFile?: string | undefined;
  /** Further rules, after those of the ignore file. */
  readonly ignore?: readonly string[] | undefined;
}

export class Image {
  readonly #draft: Draft;

  private constructor(draft: Draft) {
    this.#draft = frozen(draft);
  }

  /** Debian 12 with what agents' code expects. */
  static base(): Image {
    return new Image(startFrom({ kind: "base" }));
  }

  /** An image of the host by name, one that its operator has mapped, or one of a registry. */
  static from(name: string): Image {
    return new Image(startFrom(parseBase({ kind: "image", name }, "from", 0) as ExternalBase));
  }

  static fromSnapshot(id: string): Image {
    return new Image(startFrom(parseBase({ kind: "snapshot", id }, "fromSnapshot", 0) as ExternalBase));
  }

  /** The Dockerfile and what it copies are read when the image is resolved. */
  static fromDockerfile(path: string, options: DockerfileOptions = {}): Image {
    const members = readObject(options, "fromDockerfile options", ["context", "target", "args"]);
    const base = defined({
      kind: "dockerfile" as const,
      path: readText(path, "fromDockerfile path", { expected: "a path" }),
      context: optional(members.get("context"), "fromDockerfile context", (value, at) => readText(value, at)),
      target: optional(members.get("target"), "fromDockerfile target", (value, at) => readText(value, at)),
      args: optional(members.get("args"), "fromDockerfile args", readEnvironment),
    });
    return new Image(startFrom(base));
  }

  get steps(): readonly DraftStep[] {
    // Bytes cannot be frozen: whoever looks at them gets their own.
    return frozen(
      this.#draft.steps.map((step) =>
        step.kind === "inline-file" ? { ...step, content: step.content.slice() } : step,
      ),
    );
  }

  get builderOptions(): BuilderOptions {
    return this.#draft.builder;
  }

  aptInstall(packages: readonly string[]): Image {
    return this.#withStep({ kind: "apt", packages }, "aptInstall");
  }

  pipInstall(packages: readonly string[], options: { readonly indexUrl?: string | undefined } = {}): Image {
    const indexUrl = readObject(options, "pipInstall options", ["indexUrl"]).get("indexUrl");
    return this.#withStep({ kind: "pip", packages, indexUrl }, "pipInstall");
  }

  npmInstall(packages: readonly string[], options: { readonly registryUrl?: string | undefined } = {}): Image {
    const registryUrl = readObject(options, "npmInstall options", ["registryUrl"]).get("registryUrl");
    return this.#withStep({ kind: "npm", packages, registryUrl }, "npmInstall");
  }

  /** Each is a step of its own, by `/bin/sh -c`: what one leaves behind in its shell is gone in the next. */
  runCommands(...commands: readonly string[]): Image {
    const checked = readList(commands, "runCommands commands", (command, at) =>
      parseStep({ kind: "run", command }, at),
    );
    return this.#with({ steps: [...this.#draft.steps, ...checked] });
  }

  /** `shell`: the words before the command, such as `["/bin/bash", "-o", "pipefail", "-c"]`. */
  run(
    command: string,
    options: { readonly user?: string | undefined; readonly shell?: readonly string[] | undefined } = {},
  ): Image {
    const members = readObject(options, "run options", ["user", "shell"]);
    return this.#withStep({ kind: "run", command, user: members.get("user"), shell: members.get("shell") }, "run");
  }

  /** A program and its arguments, without a shell. */
  exec(argv: readonly string[], options: { readonly user?: string | undefined } = {}): Image {
    const user = readObject(options, "exec options", ["user"]).get("user");
    return this.#withStep({ kind: "exec", argv, user }, "exec");
  }

  /** Becomes `to` itself, or goes into it if `to` ends with a slash or is a directory. A link is followed. */
  addLocalFile(path: string, to: string, options: CopyOptions = {}): Image {
    const step: DraftStep = {
      kind: "local-file",
      path: readText(path, "addLocalFile path", { expected: "a path" }),
      to: readTarget(to, "addLocalFile to"),
      ...keepingOwner(readObject(options, "addLocalFile", ["owner", "mode"])),
    };
    return this.#with({ steps: [...this.#draft.steps, defined(step)] });
  }

  /** The content of the directory goes into `to`. Modes, owners by number, links and empty directories are kept. */
  addLocalDir(path: string, to: string, options: LocalDirOptions = {}): Image {
    const members = readObject(options, "addLocalDir", ["owner", "mode", "ignoreFile", "ignore"]);
    const step: DraftStep = {
      kind: "local-dir",
      path: readText(path, "addLocalDir path", { expected: "a path" }),
      to: readTarget(to, "addLocalDir to"),
      ...keepingOwner(members),
      ignoreFile: optional(members.get("ignoreFile"), members.at("ignoreFile"), (value, at) => readText(value, at)),
      ignore: optional(members.get("ignore"), members.at("ignore"), (value, at) =>
        readList(value, at, (rule, place) => readText(rule, place, { mayBeEmpty: true }), { mayBeEmpty: true }),
      ),
    };
    return this.#with({ steps: [...this.#draft.steps, defined(step)] });
  }

  /** A file whose content is given here. Mode 0o644 if nothing else is said. */
  addFile(to: string, content: string | Uint8Array, options: CopyOptions = {}): Image {
    const target = readTarget(to, "addFile to");
    if (target.endsWith("/")) throw refuse("addFile to", to, "the path of a file, without a slash at its end");
    if (typeof content !== "string" && !(content instanceof Uint8Array)) {
      throw refuse("addFile content", content, "a text or a Uint8Array");
    }
    const step: DraftStep = {
      kind: "inline-file",
      // A copy: the caller may go on writing to its array.
      content: typeof content === "string" ? new TextEncoder().encode(content) : content.slice(),
      to: target,
      ...readCopyOptions(readObject(options, "addFile", ["owner", "mode"])),
    };
    return this.#with({ steps: [...this.#draft.steps, defined(step)] });
  }

  /** From another image, by name or as declared here: it is built then, and only what is copied becomes part of this one. */
  copyFrom(source: string | Image, paths: string | readonly string[], to: string, options: CopyOptions = {}): Image {
    const members = readObject(options, "copyFrom", ["owner", "mode"]);
    const copy = {
      paths: typeof paths === "string" ? [paths] : paths,
      to,
      // As in a Dockerfile, owners of another image are kept unless somebody says otherwise.
      owner: members.get("owner") ?? "keep",
      mode: members.get("mode"),
    };
    const named = source instanceof Image ? { kind: "base" } : { kind: "image", name: source };
    const step = parseStep({ kind: "copy-from", source: named, ...copy }, "copyFrom");
    if (!(source instanceof Image) || step.kind !== "copy-from")
      return this.#with({ steps: [...this.#draft.steps, step] });
    const fromImage: DraftStep = { ...step, kind: "copy-image", source: source.#draft };
    return this.#with({ steps: [...this.#draft.steps, fromImage] });
  }

  /** For later steps, commands, terminals and the start command. Values are taken as they are: `$` is a dollar sign. */
  env(variables: Readonly<Record<string, string>>): Image {
    return this.#withStep({ kind: "env", variables }, "env");
  }

  /** For later steps, commands, terminals and the start command; made if it is not there. */
  workdir(path: string): Image {
    return this.#withStep({ kind: "workdir", path }, "workdir");
  }

  /** For later steps, commands, terminals and the start command. `create`: made if the image does not know the name. */
  user(name: string, options: { readonly create?: boolean | undefined } = {}): Image {
    const create = readObject(options, "user options", ["create"]).get("create");
    return this.#withStep({ kind: "user", name, create }, "user");
  }

  entrypoint(argv: readonly string[]): Image {
    return this.#withStep({ kind: "entrypoint", argv }, "entrypoint");
  }

  cmd(argv: readonly string[]): Image {
    return this.#withStep({ kind: "cmd", argv }, "cmd");
  }

  /** `8000`, `"8000"` or `"53/udp"`. */
  expose(...ports: readonly (number | string)[]): Image {
    return this.#withStep(
      { kind: "expose", ports: ports.map((port) => (typeof port === "number" ? String(port) : port)) },
      "expose",
    );
  }

  label(labels: Readonly<Record<string, string>>): Image {
    return this.#withStep({ kind: "label", labels }, "label");
  }

  /** Runs in every sandbox of the image; the sandbox is there when it is ready. */
  startCommand(command: string, options: { readonly readyWhen?: ReadyCondition | undefined } = {}): Image {
    readObject(options, "startCommand options", ["readyWhen"]);
    const { readyWhen } = options;
    const start = {
      command,
      readyWhen: readyWhen === undefined ? undefined : readyWhenFrom(readyWhen, "startCommand.readyWhen"),
    };
    return this.#with({ start: parseStartCommand(start, "startCommand") });
  }

  /** What the build gets. Not part of the image; what is not named here stays as it was. */
  builder(options: BuilderOptions): Image {
    return this.#with({ builder: { ...this.#draft.builder, ...parseBuilderOptions(options, "builder") } });
  }

  /** The short form of `builder({ memoryMb })`. */
  builderMemory(memoryMb: number): Image {
    if (memoryMb === undefined) throw refuse("builderMemory memoryMb", memoryMb, "a number");
    return this.builder({ memoryMb });
  }

  /** The floor: what the image has to start in when it is finished, and may be run with at least. */
  runtimeMemory(runtimeMemoryMb: number): Image {
    if (runtimeMemoryMb === undefined) throw refuse("runtimeMemory runtimeMemoryMb", runtimeMemoryMb, "a number");
    return this.builder({ runtimeMemoryMb });
  }

  /** Reads local files and gives the recipe, the blobs it needs and what the builder gets. */
  async resolve(): Promise<ResolvedImage> {
    return resolveDraft(this.#draft);
  }

  /** To look at: contents are told by their length. */
  toJSON(): unknown {
    return toPlain(this.#draft);
  }

  #withStep(step: unknown, method: string): Image {
    return this.#with({ steps: [...this.#draft.steps, parseStep(step, method)] });
  }

  #with(changes: Partial<Draft>): Image {
    return new Image({ ...this.#draft, ...changes });
  }
}

/** Local files belong to whom they belong to here, unless somebody says otherwise. */
function keepingOwner(members: Members): CopyOptions {
  const options = readCopyOptions(members);
  return members.get("owner") === undefined ? { ...options, owner: "keep" } : options;
}

/** All the way down; what is frozen is so already. */
function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value) || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) frozen(member);
  return Object.freeze(value);
}

function startFrom(base: Draft["base"]): Draft {
  return { base, steps: [], start: null, builder: {} };
}

function toPlain({ base, steps, start, builder }: Draft): object {
  return {
    base,
    steps: steps.map((step) => {
      if (step.kind === "inline-file") return { ...step, content: `${step.content.length} bytes` };
      return step.kind === "copy-image" ? { ...step, source: toPlain(step.source) } : step;
    }),
    start,
    builder,
  };
}
