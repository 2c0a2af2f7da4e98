/** Values that are wrong where another kind is wanted, and how a route says which it wants. */

export interface Route {
  /** "GET /sandboxes/:sandboxID", as it is registered. */
  readonly route: string;
  /** A right JSON body. Without one the route takes none, or not JSON. */
  readonly body?: Readonly<Record<string, unknown>>;
  /** How long it may be; 1 MiB if absent. */
  readonly bodyMb?: number;
  /** For each field, dotted, wrong values as JSON text. */
  readonly wrong?: Readonly<Record<string, readonly string[]>>;
  /** A right query, if one is needed. */
  readonly query?: string;
  /** For each parameter, wrong values as they stand in the URL. */
  readonly wrongQuery?: Readonly<Record<string, readonly string[]>>;
}

export const quoted = (text: string): string => JSON.stringify(text);
export const LONG = "a".repeat(5000);

export const NOT_BOOLEAN = ["1", '"true"', "[]", "{}"];
export const NOT_TEXT = ["1", "true", "[]", "{}"];
export const NOT_RECORD = ["1", "true", '"x"', "[]"];
export const NOT_NUMBER = ['"60"', "true", "[]", "{}"];
export const NOT_SECONDS = [...NOT_NUMBER, "-1", "1.5", "1e300", "1e999", "-1e999", "86401", "null"];
export const NOT_MS = [...NOT_NUMBER, "-1", "0", "1.5", "1e300", "1e999", "null", "86400001"];
export const NOT_SIZE = [...NOT_NUMBER, "-1", "0", "1.5", "1e300", "1e999"];
export const NOT_SIDE = [...NOT_NUMBER, "-1", "0", "1.5", "65536", "1e999"];
export const MEGABYTE_OF_ENV = Object.fromEntries(
  Array.from({ length: 9 }, (_, index) => [`A${index}`, "x".repeat(100_000)]),
);
export const NOT_ENV = [
  ...NOT_RECORD,
  '{"A":1}',
  '{"A":null}',
  '{"A=B":"x"}',
  '{"":"x"}',
  '{"A":"a\\u0000b"}',
  '{"A":"\\ud800"}',
  JSON.stringify(MEGABYTE_OF_ENV),
];
export const NOT_METADATA = [...NOT_RECORD, '{"a":1}', '{"a":null}', '{"a":{}}'];
export const NOT_NAME = [...NOT_TEXT, '""', '"a\\u0000b"', '"\\ud800"', quoted(LONG)];
export const NOT_PATH = [...NOT_TEXT, '""', '"/a\\u0000b"', '"/\\ud800"', quoted(`/${"a/".repeat(5000)}`)];

export const BAD_INTEGERS = ["-1", "1.5", "x", "", "1e3", "99999999999999999999", "%00", "0x1"];
export const BAD_PATHS = ["", "/a%00b", "/%ff", "/%zz", `/${"a/".repeat(3000)}`];
