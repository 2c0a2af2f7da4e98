import { configFields } from "./fields.js";
import type { ServerConfig } from "./schema.js";
import { sourcesOf, sourceText } from "./sources.js";

/** The settings as JSON, each with what it means and where its value came from. There are no secrets among them. */
export function printConfig(config: ServerConfig): string {
  const sources = sourcesOf(config);
  const settings = configFields.map(({ field, description, flag, variable }) => [
    field,
    { value: config[field], from: sourceText(sources[field]), description, flag: `--${flag}`, variable },
  ]);
  return `${JSON.stringify(Object.fromEntries(settings), null, 2)}\n`;
}
