import { randomUUID } from "node:crypto";
import type { SandboxInfo, SandboxListOpts } from "e2b";
import { expect } from "vitest";
import type { Cases, Cell } from "../cell.js";

/** All pages of it. */
async function list({ client }: Cell, options: SandboxListOpts): Promise<{ pages: number; found: SandboxInfo[] }> {
  const paginator = client.Sandbox.list(options);
  const found: SandboxInfo[] = [];
  let pages = 0;
  while (paginator.hasNext) {
    found.push(...(await paginator.nextItems()));
    pages++;
  }
  return { pages, found };
}

const ids = (found: readonly { sandboxId: string }[]) => found.map(({ sandboxId }) => sandboxId);

export const listingCases: Cases = {
  "a list is filtered, ordered and cut into pages": async (cell) => {
    const group = `${randomUUID()} & größe = 100% + "?"`;
    const start = new Date();
    const first = await cell.create({ metadata: { group, n: "1" } });
    const second = await cell.create({ metadata: { group, n: "2", "key = & ü": "1" } });
    const third = await cell.create({ metadata: { group, n: "2" } });
    const all = ids([third, second, first]);
    const query = { metadata: { group } };

    const { found } = await list(cell, { query });
    expect(ids(found)).toEqual(all);
    expect(found[0]).toMatchObject({ state: "running", templateId: "base", metadata: { group, n: "2" } });
    expect(ids((await list(cell, { query, order: "asc" })).found)).toEqual(all.toReversed());
    expect(ids((await list(cell, { query: { metadata: { group, n: "2" } } })).found)).toEqual(ids([third, second]));
    expect(ids((await list(cell, { query: { metadata: { "key = & ü": "1", group } } })).found)).toEqual(ids([second]));
    expect((await list(cell, { query: { metadata: { group: `${group}x` } } })).found).toEqual([]);
    expect(ids((await list(cell, { query: { ...query, startedAfter: start } })).found)).toEqual(all);
    const { startedAt } = await second.getInfo();
    expect(ids((await list(cell, { query: { ...query, startedAfter: startedAt } })).found)).toEqual(
      ids([third, second]),
    );
    expect(ids((await list(cell, { query: { ...query, template: "base" } })).found)).toEqual(all);
    expect((await list(cell, { query: { ...query, template: "other" } })).found).toEqual([]);

    expect(await list(cell, { query, limit: 1 })).toMatchObject({
      pages: 3,
      found: all.map((sandboxId) => ({ sandboxId })),
    });
    expect(await list(cell, { query, limit: 2, order: "asc" })).toMatchObject({
      pages: 2,
      found: all.toReversed().map((sandboxId) => ({ sandboxId })),
    });

    await second.pause();
    const states = async (...state: ("running" | "paused")[]) =>
      ids((await list(cell, { query: { ...query, state } })).found);
    expect(await states("paused")).toEqual(ids([second]));
    expect(await states("running")).toEqual(ids([third, first]));
    expect(await states("running", "paused")).toEqual(all);
    await third.kill();
    expect(await states("running", "paused")).toEqual(ids([second, first]));
  },

  "a sandbox stays in its place while pages are turned": async (cell) => {
    const group = randomUUID();
    const made = [];
    for (let i = 0; i < 4; i++) made.push(await cell.create({ metadata: { group } }));
    const paginator = cell.client.Sandbox.list({ query: { metadata: { group } }, limit: 2 });
    const before = await paginator.nextItems();
    await cell.create({ metadata: { group } });
    await made[0]?.pause();
    const after = await paginator.nextItems();
    expect(ids([...before, ...after])).toEqual(ids(made.toReversed()));
    expect(paginator.hasNext).toBe(false);
  },
};
