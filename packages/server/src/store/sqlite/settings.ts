import { HoldfastError } from "@holdfast/protocol";
import type { Store } from "../store.js";
import type { Connection } from "./connection.js";

export function createSettings(connection: Connection): Store["settings"] {
  const { build } = connection;

  function read(name: string): string | undefined {
    return connection.first(build.selectFrom("settings").select("value").where("name", "=", name))?.value;
  }

  return {
    async get(name) {
      return read(name);
    },

    async putIfAbsent(name, value) {
      return connection.transaction(() => {
        const insert = build.insertInto("settings").values({ name, value });
        connection.run(insert.onConflict((conflict) => conflict.doNothing()));
        const standing = read(name);
        if (standing === undefined) throw new HoldfastError("engine_fault", `the setting ${name} was not stored`);
        return standing;
      });
    },
  };
}
