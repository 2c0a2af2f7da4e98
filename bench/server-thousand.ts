/** Very many sandboxes over HTTP, made and ended: one at a time, and several at a time. */
import { type Bench, createRow, type Figure, type Row, timed } from "./harness.js";
import { type Client, type ClientSandbox, e2bClient, engineClient } from "./server-clients.js";
import { sharedServer } from "./server-process.js";

const AT_ONCE = 10;
const CREATE_GOAL = { kind: "difference", atMost: 5 } as const;

/** By block: what each took, and all of them together. */
interface Lives {
  readonly creates: number[][];
  readonly kills: number[][];
  readonly blocks: number[];
}

async function oneBlock(bench: Bench, client: Client, count: number, atOnce: number, lives: Lives): Promise<void> {
  const creates: number[] = [];
  const kills: number[] = [];
  let left = count;
  const worker = async () => {
    while (left > 0) {
      bench.signal.throwIfAborted();
      left -= 1;
      let sandbox: ClientSandbox | undefined;
      creates.push(
        await timed(async () => {
          sandbox = await client.create();
        }),
      );
      kills.push(await timed(async () => sandbox?.kill()));
    }
  };
  lives.blocks.push(await timed(() => Promise.all(Array.from({ length: atOnce }, worker))));
  lives.creates.push(creates);
  lives.kills.push(kills);
}

/** The two take turns block by block. */
async function live(
  bench: Bench,
  clients: readonly Client[],
  options: { readonly total: number; readonly block: number; readonly atOnce: number },
): Promise<Lives[]> {
  const all = clients.map((): Lives => ({ creates: [], kills: [], blocks: [] }));
  for (let done = 0; done < options.total; done += options.block) {
    for (const [index, client] of clients.entries()) {
      await oneBlock(bench, client, options.block, options.atOnce, all[index] as Lives);
    }
  }
  return all;
}

function rowsOf(how: string, [ours, theirs]: readonly Lives[], block: number): Row[] {
  if (ours === undefined || theirs === undefined) return [];
  const perSecond = (lives: Lives) => lives.blocks.map((ms) => [(block / ms) * 1000]);
  const rate = (lives: Lives) => {
    const values = perSecond(lives).flat();
    return `${(values.reduce((sum, value) => sum + value, 0) / values.length).toFixed(1)} a second`;
  };
  const peer = (key: "creates" | "kills") => ({ name: "engine", rounds: theirs[key] });
  return [
    createRow(`create, ${how}`, "ms", ours.creates, {
      peer: peer("creates"),
      ...(how === "one at a time" ? { goal: CREATE_GOAL } : {}),
    }),
    createRow(`kill, ${how}`, "ms", ours.kills, { peer: peer("kills") }),
    createRow(`${block} of both, ${how}`, "ms", [ours.blocks], {
      peer: { name: "engine", rounds: [theirs.blocks] },
      note: `${rate(ours)} against ${rate(theirs)}`,
    }),
  ];
}

export const serverThousand: Figure = {
  name: "server-thousand",
  title: "1,000 sandboxes over HTTP, through the e2b SDK: made and ended",
  async run(bench): Promise<Row[]> {
    const server = await sharedServer(bench);
    const clients = [e2bClient(server), engineClient(bench.engine)];
    const total = bench.quick ? 40 : 1000;
    const block = bench.quick ? 20 : 50;
    const before = await server.usage({ collect: true });
    const rows = await server.profiled("thousand", async () => [
      ...rowsOf("one at a time", await live(bench, clients, { total, block, atOnce: 1 }), block),
      ...rowsOf(`${AT_ONCE} at a time`, await live(bench, clients, { total, block, atOnce: AT_ONCE }), block),
    ]);
    const after = await server.usage({ collect: true });
    const grown = (after.heapBytes - before.heapBytes) / (2 * total);
    return [
      ...rows,
      createRow("the server's heap grew, for each sandbox", "bytes", [[grown]]),
      ...(await server.memoryRows(`after ${2 * total} sandboxes more; resident before: ${before.rssBytes >> 20} MiB`)),
    ];
  },
};
