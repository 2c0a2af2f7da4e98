/** What a server shows to Prometheus, as numbers. */
import { expect } from "vitest";
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
