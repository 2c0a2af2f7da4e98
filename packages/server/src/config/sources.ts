/** Where each value came from, for whoever wonders why the server does what it does. */
import type { ConfigField, ServerConfig } from "./schema.js";

export type Source =
  | { readonly kind: "default" }
  | { readonly kind: "file"; readonly path: string; readonly key: string }
  | { readonly kind: "environment"; readonly variable: string }
  | { readonly kind: "flag"; readonly flag: string };

export type Sources = Readonly<Partial<Record<ConfigField, Source>>>;

const known = new WeakMap<ServerConfig, Sources>();

export function keepSources(config: ServerConfig, sources: Sources): void {
  known.set(config, sources);
}

/** What is not listed has its default. */
export function sourcesOf(config: ServerConfig): Sources {
  return known.get(config) ?? {};
}

export function sourceText(source: Source | undefined): string {
  switch (source?.kind) {
    case "file":
      return `"${source.key}" in ${source.path}`;
    case "environment":
      return `the variable ${source.variable}`;
    case "flag":
      return `--${source.flag}`;
    case "default":
    case undefined:
      return "the default";
  }
}
