/**
 * Steps of a recipe from values that nobody vouches for, in their normal form: what says the same is written the same, so
 * that it hashes alike. Defaults are left out, paths are cleaned, ports get their protocol.
 */
import { HoldfastError } from "@holdfast/protocol";
import { isDigest } from "./digest.js";
import {
  defined,
  type Members,
  member,
  optional,
  readBoolean,
  readList,
  readNumber,
  readObject,
  readText,
  readTexts,
  refuse,
} from "./fields.js";
import { globPattern } from "./glob.js";
import { readAbsolute, readTarget, readWorkdir } from "./paths.js";
import type { CopyOptions, Digest, RecipeBase, RecipeStep, StepKind } from "./recipe.js";
import { expandVariables } from "./variables.js";

const USER = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,254})?$/;
const NEW_USER = /^[A-Za-z_][A-Za-z0-9_.-]{0,31}$/;
const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_.-]*$/;
/** Of images and snapshots: names, registries, tags and digests; never a path that leads elsewhere. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9_.+-]*([:/@][A-Za-z0-9_][A-Za-z0-9_.+-]*)*$/;
const PORT = /^(\d{1,5})(?:\/(tcp|udp|sctp))?$/i;
const DEFAULT_SHELL = ["/bin/sh", "-c"];

export function readDigest(value: unknown, field: string): Digest {
  if (!isDigest(value)) throw refuse(field, value, '"sha256:" and 64 lower-case hex digits');
  return value;
}

export function readEnvironment(value: unknown, field: string): Record<string, string> {
  return readTexts(value, field, (name, at) =>
    readText(name, at, {
      pattern: ENV_NAME,
      maxBytes: 1024,
      expected: "a letter or underscore, then letters, digits, underscores, dots and hyphens",
    }),
  );
}

export function readUser(value: unknown, field: string): string {
  return readText(value, field, { pattern: USER, expected: 'a user such as "user", "user:group" or "1000:1000"' });
}

export function readMode(value: unknown, field: string): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > 0o7777) {
    throw refuse(field, value, "a file mode from 0 to 0o7777");
  }
  return value;
}

/** The owner is left out if it is root's, which is the default. */
export function readCopyOptions(members: Members): CopyOptions {
  const owner = optional(members.get("owner"), members.at("owner"), readUser);
  return {
    owner: owner !== undefined && ["root", "0", "root:root", "0:0"].includes(owner) ? undefined : owner,
    mode: optional(members.get("mode"), members.at("mode"), readMode),
  };
}

export function readReference(value: unknown, field: string): string {
  return readText(value, field, {
    pattern: REFERENCE,
    maxBytes: 1024,
    expected: 'the name of an image such as "debian:12" or "localhost:5000/team/app:1.2"',
  });
}

/** How many stages come before: `stage` bases may speak of those only. */
export function parseBase(value: unknown, field: string, stageCount: number): RecipeBase {
  const kind = readKind(value, field, ["base", "image", "snapshot", "stage"]);
  switch (kind) {
    case "base":
      readObject(value, field, ["kind"]);
      return { kind };
    case "image": {
      const name = readReference(readObject(value, field, ["kind", "name"]).get("name"), member(field, "name"));
      return name === "base" ? { kind: "base" } : { kind, name };
    }
    case "snapshot":
      return { kind, id: readReference(readObject(value, field, ["kind", "id"]).get("id"), member(field, "id")) };
    case "stage": {
      const index = readObject(value, field, ["kind", "index"]).get("index");
      if (stageCount === 0) throw refuse(member(field, "index"), index, "an earlier stage, and there is none");
      return { kind, index: readNumber(index, member(field, "index"), { min: 0, max: stageCount - 1 }) };
    }
  }
}

function readKind<const K extends string>(value: unknown, field: string, kinds: readonly K[]): K {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw refuse(field === "" ? "the value" : field, value, "an object");
  }
  const kind: unknown = Object.hasOwn(value, "kind") ? (value as { kind: unknown }).kind : undefined;
  const found = kinds.find((known) => known === kind);
  if (found === undefined) throw refuse(member(field, "kind"), kind, `one of ${kinds.join(", ")}`);
  return found;
}

/** A name that begins with a hyphen would be an option to the program that installs it. */
function readPackages(members: Members): string[] {
  return readList(members.get("packages"), members.at("packages"), (item, field) => {
    const name = readText(item, field, { expected: "a package", maxBytes: 4096 });
    if (name.trim() === "") throw refuse(field, name, "a package");
    if (name.startsWith("-")) {
      throw refuse(field, name, "a package, not an option", "Run the installer in a command of your own for options.");
    }
    return name;
  });
}

function readUrl(value: unknown, field: string): string {
  const url = readText(value, field, { expected: "a URL", maxBytes: 4096, pattern: /^[^\s]+$/ });
  const protocol = URL.canParse(url) ? new URL(url).protocol : "";
  if (!["http:", "https:", "file:"].includes(protocol)) throw refuse(field, url, "a URL with http, https or file");
  return url;
}

function readArguments(value: unknown, field: string, mayBeEmpty: boolean): string[] {
  const argv = readList(value, field, (item, at) => readText(item, at, { mayBeEmpty: true }), { mayBeEmpty });
  if (argv[0] === "") throw refuse(`${field}[0]`, "", "a program");
  return argv;
}

function readShell(value: unknown, field: string): string[] | undefined {
  const shell = readArguments(value, field, false);
  return shell.length === 2 && shell[0] === DEFAULT_SHELL[0] && shell[1] === DEFAULT_SHELL[1] ? undefined : shell;
}

function readRunOptions(members: Members): { user: string | undefined; env: Record<string, string> | undefined } {
  const env = optional(members.get("env"), members.at("env"), readEnvironment);
  return {
    user: optional(members.get("user"), members.at("user"), readUser),
    env: env === undefined || Object.keys(env).length === 0 ? undefined : env,
  };
}

/** `8000` and `8000/TCP` are `8000/tcp`. */
export function readPort(value: unknown, field: string): string {
  const [, number = "", protocol = "tcp"] = (typeof value === "string" ? PORT.exec(value) : null) ?? [];
  if (number === "" || Number(number) < 1 || Number(number) > 65_535) {
    throw refuse(field, value, 'a port from 1 to 65535, such as "8000/tcp"');
  }
  return `${Number(number)}/${protocol.toLowerCase()}`;
}

function requireTemplate(value: string, field: string): void {
  try {
    expandVariables(value, () => "");
  } catch (error) {
    throw refuse(field, value, `a template (${HoldfastError.from(error).message})`);
  }
}

function readGlob(value: unknown, field: string): string {
  const path = readAbsolute(value, field);
  // Throws for patterns that are not well formed.
  globPattern(path);
  return path;
}

function readFileName(value: unknown, field: string): string {
  const name = readText(value, field, { maxBytes: 255, expected: "a file's name" });
  if (name.includes("/") || name === "." || name === "..") throw refuse(field, name, "a file's name");
  return name;
}

type Reader<K extends StepKind> = (members: Members, stageCount: number) => Extract<RecipeStep, { kind: K }>;

const COPY_FIELDS = ["to", "owner", "mode"];
const READERS: { readonly [K in StepKind]: { readonly fields: readonly string[]; readonly read: Reader<K> } } = {
  run: {
    fields: ["command", "shell", "user", "env"],
    read: (members) => ({
      kind: "run",
      command: readText(members.get("command"), members.at("command"), { expected: "a command" }),
      shell: optional(members.get("shell"), members.at("shell"), readShell),
      ...readRunOptions(members),
    }),
  },
  exec: {
    fields: ["argv", "user", "env"],
    read: (members) => ({
      kind: "exec",
      argv: readArguments(members.get("argv"), members.at("argv"), false),
      ...readRunOptions(members),
    }),
  },
  apt: { fields: ["packages"], read: (members) => ({ kind: "apt", packages: readPackages(members) }) },
  pip: {
    fields: ["packages", "indexUrl"],
    read: (members) => ({
      kind: "pip",
      packages: readPackages(members),
      indexUrl: optional(members.get("indexUrl"), members.at("indexUrl"), readUrl),
    }),
  },
  npm: {
    fields: ["packages", "registryUrl"],
    read: (members) => ({
      kind: "npm",
      packages: readPackages(members),
      registryUrl: optional(members.get("registryUrl"), members.at("registryUrl"), readUrl),
    }),
  },
  env: {
    fields: ["variables", "expand"],
    read: (members) => {
      const variables = readEnvironment(members.get("variables"), members.at("variables"));
      const expand = optional(members.get("expand"), members.at("expand"), readBoolean) === true;
      if (expand)
        for (const [name, value] of Object.entries(variables))
          requireTemplate(value, member(members.at("variables"), name));
      return { kind: "env", variables, expand: expand ? true : undefined };
    },
  },
  workdir: {
    fields: ["path"],
    read: (members) => ({ kind: "workdir", path: readWorkdir(members.get("path"), members.at("path")) }),
  },
  user: {
    fields: ["name", "create"],
    read: (members) => {
      const create = optional(members.get("create"), members.at("create"), readBoolean) === true;
      const name = readUser(members.get("name"), members.at("name"));
      if (create && !NEW_USER.test(name)) {
        throw refuse(members.at("name"), name, "a name of at most 32 characters without a group, to be created");
      }
      return { kind: "user", name, create: create ? true : undefined };
    },
  },
  copy: {
    fields: ["tree", "name", ...COPY_FIELDS],
    read: (members) => {
      const to = readTarget(members.get("to"), members.at("to"));
      return {
        kind: "copy",
        tree: readDigest(members.get("tree"), members.at("tree")),
        to,
        name: optional(members.get("name"), members.at("name"), readFileName),
        ...readCopyOptions(members),
      };
    },
  },
  "copy-archive": {
    fields: ["archive", "from", ...COPY_FIELDS],
    read: (members) => ({
      kind: "copy-archive",
      archive: readDigest(members.get("archive"), members.at("archive")),
      from: readText(members.get("from"), members.at("from"), { maxBytes: 4096, expected: "a path or pattern" }),
      to: readTarget(members.get("to"), members.at("to")),
      ...readCopyOptions(members),
    }),
  },
  "copy-from": {
    fields: ["source", "paths", ...COPY_FIELDS],
    read: (members, stageCount) => {
      const paths = readList(members.get("paths"), members.at("paths"), readGlob);
      const to = readTarget(members.get("to"), members.at("to"));
      if (paths.length > 1 && !to.endsWith("/")) {
        throw refuse(members.at("to"), to, "a path that ends with a slash, because there are several paths to copy");
      }
      return {
        kind: "copy-from",
        source: parseBase(members.get("source"), members.at("source"), stageCount),
        paths,
        to,
        ...readCopyOptions(members),
      };
    },
  },
  entrypoint: {
    fields: ["argv"],
    read: (members) => ({ kind: "entrypoint", argv: readArguments(members.get("argv"), members.at("argv"), true) }),
  },
  cmd: {
    fields: ["argv"],
    read: (members) => ({ kind: "cmd", argv: readArguments(members.get("argv"), members.at("argv"), true) }),
  },
  expose: {
    fields: ["ports"],
    read: (members) => ({ kind: "expose", ports: readList(members.get("ports"), members.at("ports"), readPort) }),
  },
  label: {
    fields: ["labels"],
    read: (members) => ({
      kind: "label",
      labels: readTexts(members.get("labels"), members.at("labels"), (name, at) =>
        readText(name, at, { maxBytes: 4096, expected: "the name of a label" }),
      ),
    }),
  },
};

const STEP_KINDS = Object.keys(READERS) as StepKind[];

/** How many stages come before the one that the step is in: `copy-from` may speak of those only. */
export function parseStep(value: unknown, field = "", stageCount = 0): RecipeStep {
  const kind = readKind(value, field, STEP_KINDS);
  const { fields, read } = READERS[kind];
  return defined(read(readObject(value, field, ["kind", ...fields]), stageCount));
}
