/** Where a page of a list ended, as a token that means nothing to the client. */
import { invalidArgument, parseSandboxId, type SandboxId } from "@holdfast/protocol";

export interface PageEnd {
  readonly createdAt: Date;
  /** All ids are of the same letters, whatever they name. */
  readonly id: SandboxId;
}

export function formatPageToken(end: { readonly createdAt: Date; readonly id: string }): string {
  return Buffer.from(`${end.createdAt.getTime()}.${end.id}`).toString("base64url");
}

export function parsePageToken(token: string): PageEnd {
  const text = Buffer.from(token, "base64url").toString("latin1");
  const [, milliseconds, id] = /^(\d{1,15})\.([a-z0-9]{1,32})$/.exec(text) ?? [];
  if (milliseconds === undefined || id === undefined) {
    throw invalidArgument("nextToken", token.slice(0, 100), "the X-Next-Token of the page before");
  }
  return { createdAt: new Date(Number(milliseconds)), id: parseSandboxId(id, "nextToken") };
}
