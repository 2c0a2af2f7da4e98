/**
 * Signals that reach us are the command's. The first is passed on to all of it; a second one, or no end within the
 * grace, ends the sandbox. Before there is a command, the first already ends the run.
 */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"] as const;
type ForwardedSignal = (typeof FORWARDED)[number];

/** SIGHUP and SIGQUIT mean other things to many programs (read the configuration again, print all threads). */
const INSISTING: readonly string[] = ["SIGINT", "SIGTERM"] satisfies ForwardedSignal[];

export interface SignalTarget {
  signal(signal: string, options: { readonly whole: boolean }): Promise<void>;
  /** Ends it now, by force. */
  end(by: string): void;
}

export class SignalForwarder {
  readonly #graceMs: number;
  readonly #early = new AbortController();
  readonly #listeners = new Map<ForwardedSignal, () => void>();
  #target: SignalTarget | undefined;
  #first: ForwardedSignal | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(graceMs: number) {
    this.#graceMs = graceMs;
    for (const signal of FORWARDED) {
      const listener = (): void => this.#onSignal(signal);
      this.#listeners.set(signal, listener);
      process.on(signal, listener);
    }
  }

  /** Aborted by a signal that came before there was anything to forward it to. */
  get early(): AbortSignal {
    return this.#early.signal;
  }

  /** The first signal that came, if one did. */
  get received(): ForwardedSignal | undefined {
    return this.#first;
  }

  aimAt(target: SignalTarget): void {
    this.#target = target;
    if (this.#first !== undefined) target.end(this.#first);
  }

  /** From now on signals do again what they do to any process. */
  release(): void {
    clearTimeout(this.#timer);
    this.#target = undefined;
    for (const [signal, listener] of this.#listeners) process.off(signal, listener);
    this.#listeners.clear();
  }

  #onSignal(signal: ForwardedSignal): void {
    const isSecond = this.#first !== undefined && INSISTING.includes(signal);
    this.#first ??= signal;
    if (this.#target === undefined) {
      this.#early.abort();
      return;
    }
    const target = this.#target;
    if (isSecond) {
      target.end(signal);
      return;
    }
    // A command that has just ended cannot be signalled, and need not be.
    target.signal(signal, { whole: true }).catch(() => {});
    this.#timer ??= setTimeout(() => target.end(signal), this.#graceMs);
  }
}
