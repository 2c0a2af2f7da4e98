import type { Postmortem } from "@holdfast/protocol";
import type { Store } from "../store.js";
import type { Connection } from "./connection.js";
import { forSandbox } from "./events.js";
import { isObject, isSandboxEnding, parseJson } from "./values.js";

type StoredPostmortem = Omit<Postmortem, "sandbox" | "events">;

function isPostmortem(value: unknown): value is StoredPostmortem {
  return (
    isObject(value) &&
    isSandboxEnding(value.ending) &&
    Array.isArray(value.processes) &&
    isObject(value.counters) &&
    Array.isArray(value.commands)
  );
}

export function createPostmortems(connection: Connection): Store["postmortems"] {
  const { build } = connection;
  return {
    async put(sandboxId, postmortem) {
      const body = JSON.stringify(postmortem);
      const query = build
        .insertInto("postmortems")
        .values({ sandbox_id: sandboxId, body })
        .onConflict((conflict) => conflict.column("sandbox_id").doUpdateSet({ body }));
      forSandbox(sandboxId, () => connection.run(query));
    },

    async find(sandboxId) {
      const row = connection.first(build.selectFrom("postmortems").select("body").where("sandbox_id", "=", sandboxId));
      return row === undefined ? undefined : parseJson(row.body, isPostmortem, `the post-mortem of ${sandboxId}`);
    },
  };
}
