import type { Sandbox } from "e2b";
import { expect, onTestFinished } from "vitest";
import { TEMPLATE_DEFAULTS } from "../../helpers/needs-host.js";
import { BASH_IMAGE } from "../bash-image.js";
import { type Cases, type Cell, failure } from "../cell.js";

async function created(cell: Cell, template: string): Promise<Sandbox> {
  const sandbox = await cell.client.Sandbox.create(template, { timeoutMs: 120_000 });
  onTestFinished(async () => {
    await sandbox.kill();
  });
  return sandbox;
}

async function allSnapshots(cell: Cell, options: Parameters<Cell["client"]["Sandbox"]["listSnapshots"]>[0] = {}) {
  const pages = cell.client.Sandbox.listSnapshots(options);
  const found = [];
  while (pages.hasNext) found.push(...(await pages.nextItems()));
  return found;
}

function isSandbox(result: Sandbox | Error): result is Sandbox {
  return !(result instanceof Error);
}

export const snapshotCases: Cases = {
  "a snapshot has the files of its moment, and sandboxes are made from it": async (cell) => {
    const sandbox = await cell.create();
    await sandbox.files.write("/home/user/kept", "before");
    const snapshot = await sandbox.createSnapshot();
    await sandbox.files.write("/home/user/kept", "after");
    const copy = await created(cell, snapshot.snapshotId);
    expect(await copy.files.read("/home/user/kept")).toBe("before");
    await copy.files.write("/home/user/kept", "of the copy");
    expect(await (await created(cell, snapshot.snapshotId)).files.read("/home/user/kept")).toBe("before");
    expect(await sandbox.files.read("/home/user/kept")).toBe("after");
    expect(snapshot.names).toEqual([]);
    expect(await cell.client.Sandbox.deleteSnapshot(snapshot.snapshotId)).toBe(true);
    expect(await cell.client.Sandbox.deleteSnapshot(snapshot.snapshotId)).toBe(false);
    expect((await failure(cell.client.Sandbox.create(snapshot.snapshotId))).message).toMatch(/^404/);
    expect(await copy.files.read("/home/user/kept")).toBe("of the copy");
  },

  "a snapshot has a name if it is given one, and outlives its sandbox": async (cell) => {
    const name = `snap-${cell.version.replace(".", "")}-${cell.way}`;
    const sandbox = await cell.create();
    await sandbox.files.write("/home/user/kept", "one");
    const first = await sandbox.createSnapshot({ name });
    expect(first).toEqual({ snapshotId: `${name}:default`, names: [`${name}:default`] });
    await sandbox.files.write("/home/user/kept", "two");
    const second = await sandbox.createSnapshot({ name });
    expect(second.snapshotId).toBe(first.snapshotId);
    const tagged = await sandbox.createSnapshot({ name: `${name}:v2` });
    expect(tagged.names).toEqual([`${name}:v2`]);
    await sandbox.kill();
    expect(await (await created(cell, name)).files.read("/home/user/kept")).toBe("two");
    expect((await failure(sandbox.createSnapshot({ name }))) instanceof cell.sdk.SandboxNotFoundError).toBe(true);
    for (const { snapshotId } of await allSnapshots(cell, { sandboxId: sandbox.sandboxId })) {
      expect(await cell.client.Sandbox.deleteSnapshot(snapshotId)).toBe(true);
    }
  },

  "a snapshot cannot take a template's name": async (cell) => {
    for (const name of ["base", "no good", "a/b"]) {
      expect((await failure(cell.sandbox.createSnapshot({ name }))).message, name).toMatch(/^400: name: /);
    }
  },

  "snapshots are listed by page, by sandbox and by name": async (cell) => {
    const sandbox = await cell.create();
    const name = `list-${cell.version.replace(".", "")}-${cell.way}`;
    const ids = [
      (await sandbox.createSnapshot()).snapshotId,
      (await sandbox.createSnapshot({ name })).snapshotId,
      (await sandbox.createSnapshot()).snapshotId,
    ];
    const { sandboxId } = sandbox;
    const listed = await allSnapshots(cell, { sandboxId, limit: 2 });
    expect(listed.map(({ snapshotId }) => snapshotId)).toEqual(ids.toReversed());
    if (cell.version !== "2.45") {
      const named = await allSnapshots(cell, { name } as object);
      expect(named).toEqual([{ snapshotId: `${name}:default`, names: [`${name}:default`] }]);
    }
    expect(await allSnapshots(cell, { sandboxId: cell.sandbox.sandboxId })).toEqual([]);
    for (const id of ids) expect(await cell.client.Sandbox.deleteSnapshot(id)).toBe(true);
    expect(await allSnapshots(cell, { sandboxId })).toEqual([]);
  },

  "templates are built on the snapshot of a sandbox that was made from an image": {
    run: async (cell) => {
      const { Template, Sandbox } = cell.client;
      const suffix = `${cell.version.replace(".", "")}-${cell.way}`;
      await Template.build(Template().fromImage(BASH_IMAGE), `below-${suffix}`, TEMPLATE_DEFAULTS);
      const sandbox = await created(cell, `below-${suffix}`);
      await sandbox.commands.run("echo installed > installed.txt");
      const { snapshotId } = await sandbox.createSnapshot();
      const above = Template().fromTemplate(snapshotId).runCmd("cat installed.txt > seen.txt");
      await Template.build(above, `above-${suffix}`, TEMPLATE_DEFAULTS);
      expect(await (await created(cell, `above-${suffix}`)).files.read("/home/user/seen.txt")).toBe("installed\n");
      const onHost = await cell.sandbox.createSnapshot();
      const error = await failure(Template.build(Template().fromTemplate(onHost.snapshotId), `host-${suffix}`));
      expect(error.message).toMatch(/^400: fromTemplate: /);
      await Sandbox.deleteSnapshot(onHost.snapshotId);
    },
    timeoutMs: 120_000,
  },

  "a fork is as many sandboxes with the same files, each its own": async (cell) => {
    const sandbox = await cell.create({ metadata: { forked: "yes" }, envs: { FORKED: "too" } });
    await sandbox.files.write("/home/user/kept", "shared");
    const results = await sandbox.fork({ count: 3, timeoutMs: 60_000 });
    const forks = results.filter(isSandbox);
    onTestFinished(async () => {
      await Promise.all(forks.map((fork) => fork.kill()));
    });
    expect(forks).toHaveLength(3);
    expect(new Set([sandbox, ...forks].map(({ sandboxId }) => sandboxId)).size).toBe(4);
    for (const [index, fork] of forks.entries()) {
      expect(await fork.files.read("/home/user/kept")).toBe("shared");
      await fork.files.write("/home/user/kept", `fork ${index}`);
      expect((await fork.commands.run("echo $FORKED")).stdout).toBe("too\n");
      const { metadata, endAt, startedAt } = await fork.getInfo();
      expect(metadata).toEqual({ forked: "yes" });
      expect(endAt.getTime() - startedAt.getTime()).toBeCloseTo(60_000, -3);
    }
    expect(await sandbox.files.read("/home/user/kept")).toBe("shared");
    expect(await forks[0]?.files.read("/home/user/kept")).toBe("fork 0");
  },

  "a fork of what is not there, or of too many, is refused": async (cell) => {
    const gone = await cell.create();
    await gone.kill();
    expect(await failure(gone.fork())).toBeInstanceOf(cell.sdk.SandboxNotFoundError);
    for (const count of [0, -1, 101, 1.5]) {
      expect((await failure(cell.sandbox.fork({ count }))).message).toMatch(/count/);
    }
  },
};
