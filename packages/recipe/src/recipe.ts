/**
 * What an image is to be made of, as plain data: what `Image` and a Dockerfile come down to, what travels to the server,
 * and what the content hash is taken over. Everything that changes the result is here, and nothing that does not: how much
 * memory the builder gets, what the image is called and who asked are told beside it (see BuilderOptions).
 *
 * Files are named by content: a tree is a manifest (see tree.ts), which is a blob like every file in it.
 */

/** `sha256:` and 64 lower-case hex digits. */
export type Digest = `sha256:${string}`;

export type RecipeBase =
  /** Debian 12 with what agents' code expects, built on first use. */
  | { readonly kind: "base" }
  /** An image of this host by name, a name that the operator has mapped, or one of a registry. */
  | { readonly kind: "image"; readonly name: string }
  | { readonly kind: "snapshot"; readonly id: string }
  /** An earlier stage of the same recipe, by its index. */
  | { readonly kind: "stage"; readonly index: number };

/** Who owns what is copied in. Names are looked up in the image. Absent: root. */
export interface CopyOptions {
  /** `user`, `user:group`, or numbers. `keep`: as the manifest, the archive or the other image says. */
  readonly owner?: string | undefined;
  /** For files and directories alike; as the manifest says if absent. */
  readonly mode?: number | undefined;
}

export interface RunOptions {
  /** Instead of the user in force. */
  readonly user?: string | undefined;
  /** For this step only. Variables of the image of the same name win: what ARG is to a Dockerfile's RUN. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

export type RecipeStep =
  /** One shell command line, by `/bin/sh -c` (or the words of `shell` before it), in the work directory, as the user. */
  | ({
      readonly kind: "run";
      readonly command: string;
      readonly shell?: readonly string[] | undefined;
    } & RunOptions)
  /** A program and its arguments, no shell. */
  | ({ readonly kind: "exec"; readonly argv: readonly string[] } & RunOptions)
  /** Always as root. Each entry is an argument of its own. */
  | { readonly kind: "apt"; readonly packages: readonly string[] }
  | { readonly kind: "pip"; readonly packages: readonly string[]; readonly indexUrl?: string | undefined }
  | { readonly kind: "npm"; readonly packages: readonly string[]; readonly registryUrl?: string | undefined }
  /**
   * For later steps, commands and the start command. `expand`: the values are templates that speak of variables in force
   * before this step, such as `/opt/bin:${PATH}` (see expandVariables). A Dockerfile's ENV needs it for what only the base knows.
   */
  | {
      readonly kind: "env";
      readonly variables: Readonly<Record<string, string>>;
      readonly expand?: boolean | undefined;
    }
  /** Made if it is not there, owned by the user in force. Relative ones go on from the one in force. */
  | { readonly kind: "workdir"; readonly path: string }
  /** For later steps, commands and the start command. `create`: made if the image does not know the name. */
  | { readonly kind: "user"; readonly name: string; readonly create?: boolean | undefined }
  /**
   * A tree into the image: its top directory's content goes into `to` if `to` ends with a slash or the tree is a directory;
   * a single file becomes `to` itself, or `to/name` if `to` is a directory of the image. Directories are merged. A relative
   * `to` goes on from the work directory in force; `./` is that directory itself.
   */
  | ({
      readonly kind: "copy";
      readonly tree: Digest;
      readonly to: string;
      /** Of a single file: what it is called inside `to`. Absent: `to` must not be a directory. */
      readonly name?: string | undefined;
    } & CopyOptions)
  /** The same from an archive (tar, gzip or plain), of which `from` picks entries by a glob relative to its root. E2B's COPY. */
  | ({
      readonly kind: "copy-archive";
      readonly archive: Digest;
      readonly from: string;
      readonly to: string;
    } & CopyOptions)
  /**
   * From another stage or image. Paths are absolute and may hold wildcards (see glob.ts), which match names and never more
   * than one; one that matches nothing fails the step. Of a directory the content is copied, of a file the file: to `to`
   * itself if there is one and `to` neither ends with a slash nor is a directory.
   */
  | ({
      readonly kind: "copy-from";
      readonly source: RecipeBase;
      readonly paths: readonly string[];
      readonly to: string;
    } & CopyOptions)
  /** An empty list: none, also if the base has one. */
  | { readonly kind: "entrypoint"; readonly argv: readonly string[] }
  | { readonly kind: "cmd"; readonly argv: readonly string[] }
  /** `8000/tcp`. */
  | { readonly kind: "expose"; readonly ports: readonly string[] }
  | { readonly kind: "label"; readonly labels: Readonly<Record<string, string>> };

export type StepKind = RecipeStep["kind"];

/** When a started image counts as ready. */
export type ReadyWhen =
  | { readonly kind: "port"; readonly port: number }
  /** Retried until it exits with 0. */
  | { readonly kind: "command"; readonly command: string }
  | { readonly kind: "seconds"; readonly seconds: number };

export interface StartCommand {
  /** By `/bin/bash -l -c`, or `/bin/sh -c` in an image without bash. */
  readonly command: string;
  readonly readyWhen?: ReadyWhen | undefined;
}

export interface RecipeStage {
  readonly base: RecipeBase;
  readonly steps: readonly RecipeStep[];
}

export interface Recipe extends RecipeStage {
  readonly version: 1;
  /** Those that `stage` bases and `copy-from` speak of; each may use those before it. Empty for most. */
  readonly stages: readonly RecipeStage[];
  readonly start: StartCommand | null;
}

/** What a build gets. None of it is part of the image. */
export interface BuilderOptions {
  readonly memoryMb?: number | undefined;
  /** What a step starts with of that, to grow as it needs it. Without it, a step has all of `memoryMb` at once. */
  readonly memoryStartMb?: number | undefined;
  readonly cpus?: number | undefined;
  readonly diskMb?: number | undefined;
  readonly timeoutS?: number | undefined;
  /** The floor: what the image has to start in when it is finished, and may be run with at least. Default 1024. */
  readonly runtimeMemoryMb?: number | undefined;
  /** A step that dies for memory is tried once more at the next size. */
  readonly retryOnOom?: boolean | undefined;
  readonly network?: "on" | "off" | undefined;
}
