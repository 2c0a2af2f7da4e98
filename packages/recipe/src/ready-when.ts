/** When a started image counts as ready, as a person writes it and as it travels. */
import { defined, readNumber, readObject, readText, refuse } from "./fields.js";
import type { ReadyWhen, StartCommand } from "./recipe.js";

const MAX_WAIT_SECONDS = 86_400;

/** `"port 8000"`, another text (a command, retried until it exits with 0), or one of these. */
export type ReadyCondition =
  | string
  | { readonly port: number }
  | { readonly command: string }
  | { readonly seconds: number };

function readPort(value: unknown, field: string): ReadyWhen {
  return { kind: "port", port: readNumber(value, field, { min: 1, max: 65_535 }) };
}

function readCommand(value: unknown, field: string): ReadyWhen {
  return { kind: "command", command: readText(value, field, { expected: "a command" }) };
}

function readSeconds(value: unknown, field: string): ReadyWhen {
  return { kind: "seconds", seconds: readNumber(value, field, { min: 0, max: MAX_WAIT_SECONDS, whole: false }) };
}

/** What a person writes. */
export function readyWhenFrom(condition: ReadyCondition, field: string): ReadyWhen {
  if (typeof condition === "string") {
    const port = /^\s*port\s+(\d+)\s*$/i.exec(condition)?.[1];
    return port === undefined ? readCommand(condition, field) : readPort(Number(port), field);
  }
  const members = readObject(condition, field, ["port", "command", "seconds"]);
  const given = ["port", "command", "seconds"].filter((name) => members.get(name) !== undefined);
  const [name] = given;
  if (name === undefined || given.length > 1) throw refuse(field, condition, "one of port, command and seconds");
  const read = name === "port" ? readPort : name === "command" ? readCommand : readSeconds;
  return read(members.get(name), members.at(name));
}

/** What travels. */
function parseReadyWhen(value: unknown, field: string): ReadyWhen {
  const kind = readObject(value, field, ["kind", "port", "command", "seconds"]).get("kind");
  if (kind !== "port" && kind !== "command" && kind !== "seconds") {
    throw refuse(`${field}.kind`, kind, "one of port, command, seconds");
  }
  const members = readObject(value, field, ["kind", kind]);
  const read = kind === "port" ? readPort : kind === "command" ? readCommand : readSeconds;
  return read(members.get(kind), members.at(kind));
}

export function parseStartCommand(value: unknown, field: string): StartCommand {
  const members = readObject(value, field, ["command", "readyWhen"]);
  const readyWhen = members.get("readyWhen");
  return defined({
    command: readText(members.get("command"), members.at("command"), { expected: "a command" }),
    readyWhen: readyWhen === undefined ? undefined : parseReadyWhen(readyWhen, members.at("readyWhen")),
  });
}
