/** What clients of E2B call templates and snapshots: `name`, or `name:tag`. */
import { invalidArgument } from "@holdfast/protocol";

export const DEFAULT_TAG = "default";

const NAME = /^[a-z0-9_-]{1,128}$/;
const TAG = /^[a-z0-9_.-]{1,128}$/;
const TEMPLATE_ID = /^t[a-z0-9]{20}$/;

export interface TemplateReference {
  readonly name: string;
  /** Undefined if it does not say. */
  readonly tag: string | undefined;
}

const clean = (text: string): string => text.trim().toLowerCase();

export function isTemplateId(text: string): boolean {
  return TEMPLATE_ID.test(text);
}

export function parseTag(text: string, field: string): string {
  const tag = clean(text);
  if (TAG.test(tag)) return tag;
  throw invalidArgument(field, text.slice(0, 100), "a tag of 1 to 128 letters, digits, `-`, `_` and `.`");
}

export function parseTemplateName(text: string, field: string): TemplateReference {
  const colon = text.indexOf(":");
  const name = clean(colon === -1 ? text : text.slice(0, colon));
  if (!NAME.test(name)) {
    throw invalidArgument(
      field,
      text.slice(0, 100),
      "a name of 1 to 128 letters, digits, `-` and `_`, and a tag after a colon if there is one",
    );
  }
  return { name, tag: colon === -1 ? undefined : parseTag(text.slice(colon + 1), field) };
}

/** Undefined for what cannot be the name of a template. */
export function readTemplateName(text: string): TemplateReference | undefined {
  try {
    return parseTemplateName(text, "template");
  } catch {
    // Whoever asks for it is told that it is not there.
    return undefined;
  }
}

/** The tags of a build: those that are given, the one in the name, or the one that everything has. */
export function tagsOf(reference: TemplateReference, given: readonly string[]): string[] {
  const tags = given.map((tag, index) => parseTag(tag, `tags[${index}]`));
  const all = reference.tag === undefined ? tags : [reference.tag, ...tags];
  return all.length === 0 ? [DEFAULT_TAG] : [...new Set(all)];
}

export function nameWithTag(name: string, tag: string): string {
  return `${name}:${tag}`;
}
