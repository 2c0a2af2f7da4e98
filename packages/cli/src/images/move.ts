/** `holdfast image export`, `import`, `pull` and `push`. */
import { resolve } from "node:path";
import { formatBytes, HoldfastError, type ImageInfo, invalidArgument } from "@holdfast/protocol";
import { note } from "../text/notes.js";
import type { Compression, ExportFormat, RegistryFlags } from "./image-host.js";
import { checkNewNames, noteBase } from "./new-names.js";
import type { ImageHostFlags } from "./open-host.js";
import { withHost } from "./with-host.js";

export interface ExportFlags extends ImageHostFlags {
  readonly output?: string;
  readonly format?: ExportFormat;
  readonly compress?: Compression;
}

export interface ImportFlags extends ImageHostFlags {
  readonly tag?: readonly string[];
  readonly reference?: string;
  readonly platform?: string;
  readonly json?: boolean;
}

export interface LoginFlags extends ImageHostFlags {
  readonly username?: string;
  readonly passwordStdin?: boolean;
  readonly plainHttp?: boolean;
  readonly json?: boolean;
}

export interface PullFlags extends LoginFlags {
  readonly tag?: readonly string[];
  readonly platform?: string;
}

export interface PushFlags extends LoginFlags {
  readonly compress?: Compression;
}

const MAX_PASSWORD_BYTES = 65_536;

export async function exportImages(name: string, flags: ExportFlags): Promise<void> {
  const { output, format = "oci", compress } = flags;
  if (output === undefined) {
    throw new HoldfastError("invalid_argument", "--output: is needed: a file, or - for stdout", {
      hint: `holdfast image export ${name} -o image.tar`,
      details: { field: "--output" },
    });
  }
  const isStream = output === "-";
  if (isStream && process.stdout.isTTY === true) {
    throw new HoldfastError("invalid_argument", "--output: an archive is not written to a terminal", {
      hint: "Name a file, or send stdout somewhere: holdfast image export NAME -o - | ssh there docker load",
      details: { field: "--output" },
    });
  }
  if (isStream && format === "oci-directory") {
    throw invalidArgument("--output", output, "a path, for --format oci-directory");
  }
  const path = isStream ? null : resolve(output);
  const sizeBytes = await withHost(flags, (host, options) =>
    host.export(name, { format, compression: compress, path }, options),
  );
  note(`wrote ${name} to ${isStream ? "stdout" : output}: ${formatBytes(sizeBytes)}`);
}

export async function importImages(file: string, flags: ImportFlags): Promise<void> {
  if (file === "-" && process.stdin.isTTY === true) {
    throw new HoldfastError("invalid_argument", "FILE: an archive is not typed at a terminal", {
      hint: "Name a file, or send it to stdin: docker save app | holdfast image import - -t app",
      details: { field: "FILE" },
    });
  }
  const { tag: names = [], reference, platform } = flags;
  checkNewNames(names, "--tag");
  const path = file === "-" ? null : resolve(file);
  const image = await withHost(flags, (host, options) => host.import({ path, names, reference, platform }, options));
  tellImage(image, flags);
  noteBase(names);
}

export async function pullImages(reference: string, flags: PullFlags): Promise<void> {
  checkNewNames(flags.tag ?? [], "--tag");
  const login = await readLogin(flags);
  const { tag: names = [], platform } = flags;
  const image = await withHost(flags, (host, options) => host.pull(reference, { ...login, names, platform }, options));
  tellImage(image, flags);
  noteBase(names);
}

export async function pushImages(name: string, reference: string, flags: PushFlags): Promise<void> {
  const login = await readLogin(flags);
  const { digest } = await withHost(flags, (host, options) =>
    host.push(name, reference, { ...login, compression: flags.compress }, options),
  );
  if (flags.json === true) process.stdout.write(`${JSON.stringify({ reference, digest })}\n`);
  else process.stdout.write(`${digest}\n`);
}

/** The id for scripts, the rest for people. */
function tellImage(image: ImageInfo, flags: { readonly json?: boolean }): void {
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify(image)}\n`);
    return;
  }
  process.stdout.write(`${image.id}\n`);
  const names = image.names.length === 0 ? "it has no name (-t gives it one)" : `called ${image.names.join(", ")}`;
  note(`${formatBytes(image.sizeBytes)} in ${image.layers === 1 ? "1 layer" : `${image.layers} layers`}, ${names}`);
}

/** A password on the command line would be seen by everybody who looks at the processes. */
async function readLogin(flags: LoginFlags): Promise<RegistryFlags> {
  const { username, passwordStdin, plainHttp } = flags;
  if ((username === undefined) !== (passwordStdin !== true)) {
    const [missing, has] =
      username === undefined ? ["--username", "--password-stdin"] : ["--password-stdin", "--username"];
    throw new HoldfastError("invalid_argument", `${missing}: is needed with ${has}`, {
      hint: "For example: holdfast image pull REF --username me --password-stdin < password.txt",
      details: { field: missing },
    });
  }
  const auth = username === undefined ? undefined : { username, password: await readPassword() };
  return { auth, plainHttp: plainHttp === true ? true : undefined };
}

async function readPassword(): Promise<string> {
  let text = "";
  process.stdin.setEncoding("utf8");
  for await (const part of process.stdin as AsyncIterable<string>) {
    text += part;
    if (text.length > MAX_PASSWORD_BYTES) throw invalidArgument("--password-stdin", "(long)", "a password on stdin");
  }
  const password = text.replace(/\r?\n$/, "");
  if (password === "") throw invalidArgument("--password-stdin", "", "a password on stdin");
  return password;
}
