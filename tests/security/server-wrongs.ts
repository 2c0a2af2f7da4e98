/** Bad requests made from the tables of routes, and what is wrong with the answers to them. */
import type { RawAnswer, RawRequest } from "../helpers/raw-http.js";
import { bodyWith, forEachOf, JSON_TYPE, objectionTo } from "./server-client.js";
import type { Route } from "./server-routes.js";

const MIB = 1024 * 1024;

export interface Wrong {
  readonly about: string;
  readonly request: RawRequest;
  readonly names?: string;
}

function requestTo(
  route: Route,
  id: string,
  change: Partial<RawRequest> & { readonly query?: string; readonly path?: string } = {},
) {
  const [method = "GET", registered = "/"] = route.route.split(" ");
  const query = change.query ?? route.query;
  const path = change.path ?? fill(registered, id);
  return { method, target: query === undefined ? path : `${path}?${query}`, ...change };
}

const PARAMETER = /:\w+/g;

/** A registered path with right values in it. */
export function fill(path: string, id: string, other: Readonly<Record<string, string>> = {}): string {
  const known: Record<string, string> = {
    ":sandboxID": id,
    ":id": id,
    ":command": "1",
    ":alias": "base",
  };
  return path.replaceAll(PARAMETER, (name) => other[name] ?? known[name] ?? "base");
}

export const NEVER_JSON: readonly (readonly [about: string, body: string | Buffer])[] = [
  ["no JSON", "nonsense"],
  ["half of it", '{"a":'],
  ["two values", "{} {}"],
  ["a comment", "{/**/}"],
  ["NaN", '{"timeout":NaN}'],
  ["not UTF-8", Buffer.from([...Buffer.from('{"a":"'), 0xff, 0xfe, ...Buffer.from('"}')])],
  ["a NUL", '{"a":"\0"}'],
  ["deep objects", `${'{"a":'.repeat(20_000)}1${"}".repeat(20_000)}`],
  ["deep lists", "[".repeat(100_000)],
];
export const WRONG_WHOLES: readonly (readonly [about: string, body: string])[] = [
  ["null", "null"],
  ["a list", "[]"],
  ["a text", '"text"'],
  ["a number", "5"],
  ["true", "true"],
  ["__proto__", '{"__proto__":{"isAdmin":true}}'],
  ["constructor.prototype", '{"constructor":{"prototype":{"x":1}}}'],
];

export function wrongBodies(route: Route, id: string): Wrong[] {
  if (route.body === undefined) return [];
  const right = route.body;
  const post = (about: string, body: string | Buffer, names?: string): Wrong => ({
    about,
    request: requestTo(route, id, { headers: [JSON_TYPE], body }),
    ...(names === undefined ? {} : { names }),
  });
  return [
    ...NEVER_JSON.map(([about, body]) => post(about, body, "body")),
    ...WRONG_WHOLES.map(([about, body]) => post(about, body)),
    post("an unknown field", bodyWith(right, "unknownField", "1"), "unknownField"),
    ...Object.keys(right).map((field) => {
      const { [field]: _left, ...rest } = right;
      return post(`without ${field}`, JSON.stringify(rest), field);
    }),
    ...Object.entries(route.wrong ?? {}).flatMap(([field, values]) =>
      values.map((value) =>
        post(`${field}: ${value.slice(0, 80)}`, bodyWith(right, field, value), field.split(".").at(-1)),
      ),
    ),
    ...[
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonp",
      "\xff\xfe",
    ].map(
      (type): Wrong => ({
        about: `content type ${type}`,
        ...(type.startsWith("\xff") ? {} : { names: "content-type" }),
        request: requestTo(route, id, { headers: [["Content-Type", type]], body: JSON.stringify(right) }),
      }),
    ),
    {
      about: "a length of 100 MB, and none of it",
      names: "body",
      request: requestTo(route, id, { headers: [JSON_TYPE, ["Content-Length", 100 * MIB]] }),
    },
    post(
      "more than it takes",
      JSON.stringify({ ...right, unknownField: "x".repeat(((route.bodyMb ?? 1) + 1) * MIB) }),
      "body",
    ),
  ];
}

export function wrongQueries(route: Route, id: string): Wrong[] {
  return Object.entries(route.wrongQuery ?? {}).flatMap(([name, values]) =>
    values.map((value) => ({
      about: `?${name}=${value.slice(0, 80)}`,
      names: value.includes("%zz") || value.includes("%ff") ? undefined : name,
      request: requestTo(route, id, {
        query: [
          ...(route.query ?? "").split("&").filter((pair) => pair !== "" && !pair.startsWith(`${name}=`)),
          `${name}=${value}`,
        ].join("&"),
        ...(route.body === undefined ? {} : { headers: [JSON_TYPE], body: JSON.stringify(route.body) }),
      }),
    })),
  ) as Wrong[];
}

/** Ids that are none, as they stand in a path. */
const BAD_IDS = [
  ...[
    "iaaaaaaaaaaaaaaaaaaaa",
    "a".repeat(33),
    "a".repeat(10_000),
    "..",
    ".",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
  ],
  ...[
    "..%2f..%2fetc",
    "%00",
    "i%00",
    "%ff",
    "%zz",
    "%",
    "%e2%98%83",
    "\xe2\x98\x83",
    "ABCDEF",
    "i-1",
    "i%20",
    "i'%20OR%201=1--",
  ],
  ...["__proto__", "constructor", "*", "i;x=1", "i%0d%0aX:1", "null", "undefined", "-1", "%F0%9F%92%A9"],
];
const BAD_NUMBERS = [
  "0",
  "-1",
  "1.5",
  "abc",
  "99999999999999999999",
  "%00",
  "1e3",
  "0x1",
  "%ff",
  "..",
  "9007199254740991",
];

export function wrongParameters(route: Route, id: string): Wrong[] {
  const [, registered = ""] = route.route.split(" ");
  return [...registered.matchAll(PARAMETER)].flatMap(([name]) =>
    (name === ":command" ? BAD_NUMBERS : BAD_IDS).map((value) => ({
      about: `${name} = ${value.slice(0, 80)}`,
      request: requestTo(route, id, {
        path: fill(registered, id, { [name]: value }),
        ...(route.body === undefined ? {} : { headers: [JSON_TYPE], body: JSON.stringify(route.body) }),
      }),
    })),
  );
}

export type Send = (request: RawRequest) => Promise<RawAnswer>;

export async function objections(route: string, wrongs: readonly Wrong[], send: Send): Promise<string[]> {
  const found: string[] = [];
  await forEachOf(wrongs, async ({ about, request, names }) => {
    const objection = await send(request).then(
      (answer) => objectionTo(answer, { names }),
      (error: NodeJS.ErrnoException) => {
        // Nobody is there any more: what follows would say no more than that.
        if (error.code === "ECONNREFUSED") throw new Error(`${route}, ${about}, or one before it, ended the server`);
        return error.message.slice(0, 200);
      },
    );
    if (objection !== undefined) found.push(`${route}, ${about}: ${objection}`);
  });
  return found.sort();
}
