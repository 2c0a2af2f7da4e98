/** What an RPC knows about the request it serves. */
import { setMaxListeners } from "node:events";
import type { IncomingMessage } from "node:http";
import { setImmediate, setTimeout } from "node:timers/promises";
import {
  Code,
  ConnectError,
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { liveSandboxOf } from "../../http/live-request.js";
import type { LiveSandbox } from "../../sandboxes/types.js";
import { userFromAuthorization } from "../users.js";

const DEFAULT_KEEPALIVE_SECONDS = 90;
const MOST_KEEPALIVE_SECONDS = 3600;
const LONGEST_LOOK_MS = 64;
const SETTLE_MS = 500;

const requestKey = createContextKey<IncomingMessage | undefined>(undefined, { description: "the HTTP request" });

export function contextValuesFor(request: IncomingMessage): ContextValues {
  return createContextValues().set(requestKey, request);
}

const handovers = new Set<Promise<boolean>>();

/**
 * For a server that is about to leave: what its clients have got counts as delivered first, else whoever connects to the
 * next server gets it once more. Not for long: a client that does not read gets the rest from that one.
 */
export async function settleHandovers(): Promise<void> {
  await Promise.race([Promise.all(handovers), setTimeout(SETTLE_MS, undefined, { ref: false })]);
  // Whoever waited for them notes it in the next turn.
  await setImmediate();
}

export class Call {
  readonly live: LiveSandbox;
  readonly #context: HandlerContext;
  readonly #request: IncomingMessage;

  constructor(context: HandlerContext) {
    const request = context.values.get(requestKey);
    if (request === undefined) throw new HoldfastError("engine_fault", "an RPC came without its HTTP request");
    this.#context = context;
    this.#request = request;
    this.live = liveSandboxOf(request);
    // Every stream of a sandbox listens to it: many are no leak.
    setMaxListeners(0, this.live.gone);
  }

  /** Undefined: the sandbox's default user. */
  get user(): string | undefined {
    return userFromAuthorization(this.#context.requestHeader.get("authorization"));
  }

  /** For the options of file operations, where absent and undefined differ. */
  get asUser(): { readonly user?: string } {
    const user = this.user;
    return user === undefined ? {} : { user };
  }

  /** Aborted when the client has gone, and when the time it gave is up. */
  get signal(): AbortSignal {
    return this.#context.signal;
  }

  /** How long the client gives the call; undefined is for ever. */
  get timeoutMs(): number | undefined {
    const header = this.#context.requestHeader.get("connect-timeout-ms");
    return header === null ? undefined : Number(header);
  }

  get keepaliveMs(): number {
    const header = this.#context.requestHeader.get("keepalive-ping-interval");
    if (header === null) return DEFAULT_KEEPALIVE_SECONDS * 1000;
    const seconds = /^\d{1,4}$/.test(header) ? Number(header) : 0;
    if (seconds < 1 || seconds > MOST_KEEPALIVE_SECONDS) {
      const expected = `a whole number of seconds from 1 to ${MOST_KEEPALIVE_SECONDS}`;
      throw invalidArgument("Keepalive-Ping-Interval", header.slice(0, 100), expected);
    }
    return seconds * 1000;
  }

  /**
   * Resolves when the kernel has all that was written, which then reaches the client even if this process dies, and when
   * the news has come in that were waiting at that time. False if those were that the client had hung up. A connection that
   * we cut meanwhile, because the sandbox is gone, brings the client what the kernel had by then.
   */
  async handedOver(): Promise<boolean> {
    const handing = this.#handedOver();
    handovers.add(handing);
    try {
      return await handing;
    } finally {
      handovers.delete(handing);
    }
  }

  async #handedOver(): Promise<boolean> {
    const { socket } = this.#request;
    const { gone } = this.live;
    const hungUp = () => socket.destroyed || socket.readableEnded;
    let leftWhenCut: number | undefined;
    const onCut = () => {
      leftWhenCut = socket.writableLength;
    };
    gone.addEventListener("abort", onCut, { once: true });
    try {
      // Two turns of the event loop: one look at the network lies between them for certain.
      await setImmediate();
      await setImmediate();
      for (let waitMs = 1; socket.writableLength > 0 && !hungUp(); waitMs = Math.min(waitMs * 2, LONGEST_LOOK_MS)) {
        await setTimeout(waitMs, undefined, { ref: false });
      }
    } finally {
      gone.removeEventListener("abort", onCut);
    }
    return leftWhenCut === undefined ? !hungUp() : leftWhenCut === 0;
  }

  /**
   * A sandbox that is gone breaks its streams: a client takes a stream that ends in good order for a fault of ours, and
   * one that breaks for a reason to ask whether the sandbox still is.
   */
  cut(): void {
    this.#request.socket.destroy();
  }
}

export function isDeadline(reason: unknown): boolean {
  return reason instanceof ConnectError && reason.code === Code.DeadlineExceeded;
}
