/** Whose rights a request to envd asks for. Undefined is the sandbox's default user. */
import { HoldfastError, printable } from "@holdfast/protocol";

const LONGEST_NAME = 255;

/** E2B knows users by name only; the guest, which also takes numbers, would make up a user for one that nobody has. */
export function checkUserName(name: string | undefined): string | undefined {
  if (name === undefined || name === "") return undefined;
  if (name.length > LONGEST_NAME || /^\d+$/.test(name) || /[:\0]|\p{Cs}/u.test(name)) {
    throw new HoldfastError("user_not_found", `invalid username: '${printable(name.slice(0, LONGEST_NAME))}'`);
  }
  return name;
}

/** From `Authorization: Basic base64("<user>:")`. Another scheme says nothing about the user. */
export function userFromAuthorization(header: string | null | undefined): string | undefined {
  const credentials = /^Basic(?: +(.*))?$/i.exec(header?.trim() ?? "");
  if (credentials === null) return undefined;
  const encoded = (credentials[1] ?? "").trim();
  const decoded = /^[A-Za-z0-9+/]+={0,2}$/.test(encoded) ? Buffer.from(encoded, "base64").toString("utf8") : "";
  const colon = decoded.indexOf(":");
  if (colon < 0) {
    throw new HoldfastError(
      "unauthenticated",
      "Authorization: expected Basic and the base64 of a user's name and a colon",
    );
  }
  return checkUserName(decoded.slice(0, colon));
}
