/**
 * The connections that a request to a sandbox is under way on. When the sandbox stops running they are cut: a stream that
 * broke is what clients understand as "it is gone", and one that merely falls silent is not.
 */
import type { LiveSandbox } from "../sandboxes/types.js";

interface Connection {
  destroy(): unknown;
}

export class Flights {
  readonly #bySandbox = new Map<LiveSandbox, Set<Connection>>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Until what it returns is called. */
  add(live: LiveSandbox, connection: Connection): () => void {
    if (live.gone.aborted) {
      connection.destroy();
      return () => {};
    }
    const connections = this.#connectionsOf(live);
    connections.add(connection);
    this.#count += 1;
    return () => {
      if (!connections.delete(connection)) return;
      this.#count -= 1;
    };
  }

  /** One listener for each sandbox, however many requests it has. */
  #connectionsOf(live: LiveSandbox): Set<Connection> {
    const known = this.#bySandbox.get(live);
    if (known !== undefined) return known;
    const connections = new Set<Connection>();
    this.#bySandbox.set(live, connections);
    live.gone.addEventListener(
      "abort",
      () => {
        this.#bySandbox.delete(live);
        cut(connections);
      },
      { once: true },
    );
    return connections;
  }
}

function cut(connections: ReadonlySet<Connection>): void {
  for (const connection of [...connections]) connection.destroy();
}
