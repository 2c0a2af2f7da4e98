/** Secrets of sandboxes, derived from the server's one secret: they survive the server and are stored nowhere. */
import { createHmac, randomBytes } from "node:crypto";
import type { SandboxId } from "@holdfast/protocol";
import type { Store } from "../store/store.js";

const SETTING = "token_secret";

export class SandboxTokens {
  readonly #secret: string;

  constructor(secret: string) {
    this.#secret = secret;
  }

  static async open(store: Store): Promise<SandboxTokens> {
    return new SandboxTokens(await store.settings.putIfAbsent(SETTING, randomBytes(32).toString("hex")));
  }

  envd(id: SandboxId): string {
    return this.#derive("envd", id);
  }

  traffic(id: SandboxId): string {
    return this.#derive("traffic", id);
  }

  volume(id: string): string {
    return this.#derive("volume", id);
  }

  #derive(purpose: string, id: string): string {
    return createHmac("sha256", this.#secret).update(`${purpose}:${id}`).digest("hex");
  }
}
