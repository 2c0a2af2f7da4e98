/** What a server shows to Prometheus, as numbers. */
import { expect } from "vitest";
import { patienceMs } from "./scale.js";
import type { ServerInUse } from "./use-server.js";

export interface Scrape {
  readonly text: string;
  /** Names of what is declared, whether or not there is a value. */
  readonly names: readonly string[];
  /** By `name{label="value"}`, as it is written; undefined if there is none. */
  value(series: string): number | undefined;
}

export function parseScrape(text: string): Scrape {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, series, value] = /^([a-z][a-zA-Z0-9_]*(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
    if (series !== undefined) values.set(series, Number(value));
  }
  const names = [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name ?? "");
  return { text, names, value: (series) => values.get(series) };
}

export async function scrape(
  server: Pick<ServerInUse, "url">,
  headers: Readonly<Record<string, string>> = {},
): Promise<Scrape> {
  const response = await fetch(`${server.url}/metrics`, { headers });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  expect(response.headers.get("content-type")).toContain("text/plain; version=0.0.4");
  return parseScrape(text);
}

/** What has changed since `before`, as soon as it is `wanted`: values are read once a second at most. */
export async function expectScrapeSince(
  server: Pick<ServerInUse, "url">,
  before: Scrape,
  wanted: Readonly<Record<string, number>>,
): Promise<Scrape> {
  let now = before;
  const difference = async () => {
    now = await scrape(server);
    return Object.fromEntries(
      Object.keys(wanted).map((series) => [series, (now.value(series) ?? Number.NaN) - (before.value(series) ?? 0)]),
    );
  };
  await expect.poll(difference, { timeout: patienceMs(10_000), interval: 200 }).toEqual(wanted);
  return now;
}
