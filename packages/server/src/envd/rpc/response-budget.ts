/** A response that is one message is made in memory as a whole: this keeps its size within bounds. */
import { Code, ConnectError } from "@connectrpc/connect";
import { formatBytes } from "@holdfast/protocol";

const MOST_BYTES = 16 * 1024 * 1024;
/** What an item takes besides its texts. */
const ITEM_BYTES = 256;

export class ResponseBudget {
  readonly #what: string;
  readonly #hint: string;
  #spentBytes = 0;
  #items = 0;

  constructor(what: string, hint: string) {
    this.#what = what;
    this.#hint = hint;
  }

  /** Counts one item with its texts; refuses the one that is too many. */
  spend(...texts: readonly string[]): void {
    this.#items += 1;
    this.#spentBytes += ITEM_BYTES;
    for (const text of texts) this.#spentBytes += text.length;
    if (this.#spentBytes <= MOST_BYTES) return;
    const message = `${this.#what} is longer than ${formatBytes(MOST_BYTES)}: it was given up at item ${this.#items}. ${this.#hint}`;
    // Not "resource exhausted": clients take that for a limit on how often they may ask.
    throw new ConnectError(message, Code.OutOfRange);
  }
}
