/** Basic and Bearer authorization: what a registry's challenge comes to, and the tokens fetched for it. */
import { type Challenge, parseChallenges } from "./challenge.js";
import type { FoundCredentials } from "./credentials.js";
import { CREDENTIALS_HINT, parseAnswer, registryFailed } from "./errors.js";
import { isLoopback } from "./reference.js";
import { parseRetryAfterMs, Retries, type RetryOptions } from "./retries.js";
import { isCut, readWhole, type Transport } from "./transport.js";

interface Token {
  readonly header: string;
  readonly usableUntilMs: number;
}

const MAX_TOKEN_ANSWER_BYTES = 256 * 1024;
const DEFAULT_LIFETIME_S = 60;
const EARLY_MS = 10_000;

export interface AuthorizerOptions {
  readonly registry: string;
  readonly origin: string;
  readonly transport: Transport;
  readonly found: FoundCredentials;
  readonly retry: RetryOptions;
}

export class Authorizer {
  readonly #options: AuthorizerOptions;
  readonly #tokens = new Map<string, { readonly promise: Promise<Token>; value?: Token }>();
  #challenge: Challenge | undefined;

  constructor(options: AuthorizerOptions) {
    this.#options = options;
  }

  /** The header for these scopes; undefined until the registry has asked for one. */
  async header(scopes: readonly string[], signal: AbortSignal | undefined): Promise<string | undefined> {
    const { credentials } = this.#options.found;
    if (credentials?.kind === "token") return `Bearer ${credentials.token}`;
    if (this.#challenge === undefined) return undefined;
    if (this.#challenge.scheme === "basic") {
      return credentials?.kind === "password" ? basic(credentials.username, credentials.password) : undefined;
    }
    const key = [...scopes].sort().join(" ");
    for (;;) {
      let entry = this.#tokens.get(key);
      if (entry === undefined) {
        entry = { promise: this.#fetchToken(this.#challenge, scopes, signal) };
        this.#tokens.set(key, entry);
      }
      try {
        entry.value = await entry.promise;
        if (performance.now() < entry.value.usableUntilMs) return entry.value.header;
      } catch (reason) {
        this.#forget(key, entry);
        throw reason;
      }
      this.#forget(key, entry);
    }
  }

  /** Takes in a 401. False if nothing is left to be tried: `used` is what it refused. */
  challenged(header: string | undefined, used: string | undefined): boolean {
    const { credentials } = this.#options.found;
    if (credentials?.kind === "token") return false;
    const challenges = parseChallenges(header);
    const bearer = challenges.find(({ scheme, parameters }) => scheme === "bearer" && parameters.has("realm"));
    const canBasic = credentials?.kind === "password" && challenges.some(({ scheme }) => scheme === "basic");
    const next = bearer ?? (canBasic ? challenges.find(({ scheme }) => scheme === "basic") : undefined);
    if (next === undefined || (next.scheme === "basic" && used?.startsWith("Basic ") === true)) return false;
    this.#challenge = next;
    // Others may have renewed theirs since.
    for (const [key, entry] of this.#tokens) if (entry.value?.header === used) this.#tokens.delete(key);
    return true;
  }

  /** What to do about a 401 that remains. */
  hint(): string {
    const { note, credentials } = this.#options.found;
    const said = credentials === null ? note : ["The credentials given were refused.", note].filter(Boolean).join(" ");
    return said === null ? CREDENTIALS_HINT : `${said} ${CREDENTIALS_HINT}`;
  }

  #forget(key: string, entry: object): void {
    if (this.#tokens.get(key) === entry) this.#tokens.delete(key);
  }

  async #fetchToken(challenge: Challenge, scopes: readonly string[], signal: AbortSignal | undefined): Promise<Token> {
    const { registry, transport, found, retry } = this.#options;
    const realm = this.#realm(challenge);
    const doing = `asking ${realm.host} for a token`;
    const service = challenge.parameters.get("service");
    const asked = [...new Set([...scopes, ...(challenge.parameters.get("scope") ?? "").split(" ")])].filter(Boolean);
    const fields = new URLSearchParams(asked.map((scope): [string, string] => ["scope", scope]));
    if (service !== undefined) fields.set("service", service);
    const { credentials } = found;
    const identity = credentials?.kind === "identity" ? credentials.token : undefined;
    if (identity !== undefined) {
      fields.set("scope", asked.join(" "));
      fields.set("grant_type", "refresh_token");
      fields.set("client_id", "holdfast");
      fields.set("refresh_token", identity);
    } else {
      if (credentials?.kind === "password") fields.set("account", credentials.username);
      for (const [name, value] of fields) realm.searchParams.append(name, value);
    }
    const form = Buffer.from(fields.toString());
    const headers: Record<string, string> = { accept: "application/json" };
    if (identity !== undefined) headers["content-type"] = "application/x-www-form-urlencoded";
    else if (credentials?.kind === "password")
      headers.authorization = basic(credentials.username, credentials.password);

    const retries = new Retries(retry);
    for (;;) {
      let answer: { status: number; retryAfter: string | undefined; body: Buffer | undefined };
      try {
        const message = await transport.send({
          method: identity === undefined ? "GET" : "POST",
          url: realm,
          headers,
          signal,
          ...(identity === undefined ? {} : { body: { sizeBytes: form.length, open: () => form } }),
        });
        answer = {
          status: message.statusCode ?? 0,
          retryAfter: message.headers["retry-after"],
          body: await readWhole(message, MAX_TOKEN_ANSWER_BYTES),
        };
      } catch (cause) {
        if (!isCut(cause)) throw registryFailed({ registry, doing, problem: (cause as Error).message, cause });
        if (await retries.again({ signal })) continue;
        throw registryFailed({ registry, doing, problem: "the connection was cut again and again", cause });
      }
      if (answer.status === 200) return this.#readToken(answer.body, doing);
      if (answer.status === 429 || answer.status >= 500) {
        const afterMs = parseRetryAfterMs(answer.retryAfter, Date.now());
        if (await retries.again({ afterMs, signal })) continue;
      }
      const refused = answer.status === 401 || answer.status === 403;
      throw registryFailed({
        registry,
        doing,
        answer: parseAnswer(answer.status, answer.body ?? Buffer.alloc(0)),
        ...(refused ? { hint: this.hint() } : {}),
      });
    }
  }

  #readToken(body: Buffer | undefined, doing: string): Token {
    const { registry } = this.#options;
    if (body === undefined) throw registryFailed({ registry, doing, problem: "the answer is far too large" });
    let answer: Record<string, unknown>;
    try {
      answer = Object(JSON.parse(body.toString("utf8"))) as Record<string, unknown>;
    } catch (cause) {
      throw registryFailed({ registry, doing, problem: "the answer is not JSON", cause });
    }
    const text = answer.token ?? answer.access_token;
    if (typeof text !== "string" || !/^[\x21-\x7e]{1,65536}$/.test(text)) {
      throw registryFailed({ registry, doing, problem: "the answer holds no token" });
    }
    const lifetimeS = Number(answer.expires_in);
    const lifetimeMs = (lifetimeS > 0 && lifetimeS < 1e6 ? lifetimeS : DEFAULT_LIFETIME_S) * 1000;
    // Never shorter than a request takes: a lifetime of nothing would have us ask for ever.
    const usableMs = Math.max(lifetimeMs - EARLY_MS, lifetimeMs / 2, 1000);
    return { header: `Bearer ${text}`, usableUntilMs: performance.now() + usableMs };
  }

  /** Whoever answers in the registry's name decides where our credentials go, so not everything is believed. */
  #realm(challenge: Challenge): URL {
    const { registry, origin } = this.#options;
    const text = challenge.parameters.get("realm") ?? "";
    const refuse = (problem: string) =>
      registryFailed({ registry, doing: "reading its challenge", problem: `the token server it names ${problem}` });
    if (!URL.canParse(text)) throw refuse("is not a URL");
    const realm = new URL(text);
    const ours = new URL(origin);
    if (realm.protocol !== "https:" && realm.protocol !== "http:") throw refuse("is not a web address");
    if (realm.username !== "" || realm.password !== "") throw refuse("has credentials in its address");
    if (realm.protocol === "http:" && ours.protocol === "https:")
      throw refuse("is not encrypted, while the registry is");
    if (isLoopback(realm.hostname) && !isLoopback(ours.hostname)) throw refuse("is this machine");
    return realm;
  }
}

function basic(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}
