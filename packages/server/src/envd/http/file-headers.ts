/** The headers that describe a file. */
import type { FileEntry } from "@holdfast/engine";

const TEXT = "text/plain; charset=utf-8";
const MEDIA_TYPES: Readonly<Record<string, string>> = {
  txt: TEXT,
  log: TEXT,
  md: "text/markdown; charset=utf-8",
  csv: "text/csv; charset=utf-8",
  html: "text/html; charset=utf-8",
  htm: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  mjs: "text/javascript; charset=utf-8",
  json: "application/json",
  xml: "application/xml",
  yaml: "application/yaml",
  yml: "application/yaml",
  py: TEXT,
  ts: TEXT,
  sh: TEXT,
  c: TEXT,
  svg: "image/svg+xml",
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  ico: "image/x-icon",
  pdf: "application/pdf",
  mp3: "audio/mpeg",
  wav: "audio/wav",
  ogg: "audio/ogg",
  mp4: "video/mp4",
  webm: "video/webm",
  wasm: "application/wasm",
  zip: "application/zip",
  gz: "application/gzip",
  tar: "application/x-tar",
};

export function mediaTypeOf(name: string): string {
  const ending = /\.([a-z0-9]{1,8})$/i.exec(name)?.[1]?.toLowerCase() ?? "";
  return (Object.hasOwn(MEDIA_TYPES, ending) ? MEDIA_TYPES[ending] : undefined) ?? "application/octet-stream";
}

/** A name from inside may hold anything: quotes, line ends. */
export function contentDisposition(name: string): string {
  const plain = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_");
  const exact = encodeURIComponent(name).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  const extended = plain === name ? "" : `; filename*=UTF-8''${exact}`;
  return `inline; filename="${plain}"${extended}`;
}

export function lastModified(entry: FileEntry): Date {
  // Whole seconds are all that the header can say.
  return new Date(Number(entry.modifiedNs / 1_000_000_000n) * 1000);
}
