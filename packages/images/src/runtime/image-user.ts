/**
 * Who commands of an image run as. The engine knows names, numbers and pairs of numbers; an image may also say `user:group`,
 * with names that only its own files can tell the numbers of.
 */
import type { Sandbox } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";

const NUMBERS = /^\d+(:\d+)?$/;
const MAX_USERS_FILE_BYTES = 4 * 1024 * 1024;

/** The nearest that the engine knows without looking into the image: the user, in the user's own group. */
export function plainUser(user: string): string {
  if (NUMBERS.test(user)) return user;
  const [name = ""] = user.split(":");
  return name === "" ? "0" : name;
}

/** As the engine knows it, exactly. `user_not_found` if the image has no such user or group. */
export async function userInside(sandbox: Sandbox, user: string): Promise<string> {
  // By number: images need not have a list of users.
  if (user === "root" || user === "") return "0";
  const colon = user.indexOf(":");
  if (colon < 0 || NUMBERS.test(user)) return user;
  const uid = await idOf(sandbox, user.slice(0, colon), { file: "/etc/passwd", what: "user" });
  const gid = await idOf(sandbox, user.slice(colon + 1), { file: "/etc/group", what: "group" });
  return `${uid}:${gid}`;
}

/** In both files the name comes first and its number third. */
async function idOf(
  sandbox: Sandbox,
  name: string,
  { file, what }: { readonly file: string; readonly what: string },
): Promise<string> {
  if (/^\d+$/.test(name)) return name;
  if (name === "root") return "0";
  const lines = await readUsersFile(sandbox, file);
  const id = lines.map((line) => line.split(":")).find((fields) => fields[0] === name)?.[2];
  if (id === undefined || !/^\d+$/.test(id)) {
    throw new HoldfastError("user_not_found", `the image has no ${what} ${JSON.stringify(name)}`, {
      hint: `Add it in an earlier step, or name it by its number.`,
    });
  }
  return id;
}

/** The lines of a file such as /etc/passwd; none if there is no such file. */
export async function readUsersFile(sandbox: Sandbox, path: string): Promise<string[]> {
  try {
    const { entry, content } = await sandbox.files.read(path, { user: "root" });
    if (entry.sizeBytes > MAX_USERS_FILE_BYTES) {
      content.destroy();
      throw new HoldfastError("image_invalid", `${path} of the image is larger than any such file`);
    }
    const chunks: Buffer[] = [];
    for await (const chunk of content) chunks.push(chunk as Buffer);
    return Buffer.concat(chunks)
      .toString("utf8")
      .split("\n")
      .filter((line) => line !== "");
  } catch (reason) {
    if (HoldfastError.from(reason).code === "file_not_found") return [];
    throw reason;
  }
}
