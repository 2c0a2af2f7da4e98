/**
 * Where files of templates are sent to: addresses that are good for one file of one template, for a while, and need no key.
 * They are signed with the server's own secret, so that nothing has to be remembered about them.
 */
import { createHmac, randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import { keyNeeded } from "../http/authenticate.js";
import { isSameSecret } from "../http/same-secret.js";
import type { Store } from "../store/store.js";

/** That of sandboxes' tokens; what is derived from it here begins with another word. */
const SETTING = "token_secret";
const GOOD_FOR_MS = 3600_000;
const FORWARDED_PROTOCOL = /^https?$/;

export interface Upload {
  readonly keyId: string;
  readonly templateId: string;
  readonly hash: string;
}

export interface UploadProof {
  readonly expires: number;
  readonly signature: string;
}

export class TemplateUploads {
  readonly #secret: string;

  constructor(secret: string) {
    this.#secret = secret;
  }

  static async open(store: Store): Promise<TemplateUploads> {
    return new TemplateUploads(await store.settings.putIfAbsent(SETTING, randomBytes(32).toString("hex")));
  }

  /** Path and query. */
  addressOf(upload: Upload, now = Date.now()): string {
    const expires = Math.floor((now + GOOD_FOR_MS) / 1000);
    const { keyId: key, templateId, hash } = upload;
    const query = new URLSearchParams({ key, expires: String(expires), signature: this.#sign(upload, expires) });
    return `/template-files/${templateId}/${hash}?${query}`;
  }

  /** Whoever has no proof is told what anybody without a key is told. */
  require(upload: Upload, proof: UploadProof, now = Date.now()): void {
    if (!isSameSecret(proof.signature, this.#sign(upload, proof.expires))) throw keyNeeded();
    if (proof.expires * 1000 < now) {
      throw new HoldfastError("unauthenticated", "this address has expired", {
        hint: "GET /templates/{templateID}/files/{hash} gives a new one.",
      });
    }
  }

  #sign({ keyId, templateId, hash }: Upload, expires: number): string {
    return createHmac("sha256", this.#secret)
      .update(JSON.stringify(["template-file", keyId, templateId, hash, expires]))
      .digest("hex");
  }
}

/** The way the client came, which is the way it can come again. */
export function originOf(request: IncomingMessage): string {
  // Only the client itself is told: whoever claims another protocol misleads nobody else.
  const forwarded = request.headers["x-forwarded-proto"];
  const isTls = "encrypted" in request.socket && request.socket.encrypted === true;
  const protocol =
    typeof forwarded === "string" && FORWARDED_PROTOCOL.test(forwarded) ? forwarded : isTls ? "https" : "http";
  return `${protocol}://${request.headers.host ?? "localhost"}`;
}
