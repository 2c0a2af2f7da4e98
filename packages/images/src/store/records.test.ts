import { expect, test } from "vitest";
import { parseImageRecord, parseStepRecord, UnknownVersionError } from "./records.js";

const ID = `img${"a".repeat(20)}`;
const PATH = `/records/${ID}.json`;
const record = {
  version: 1,
  id: ID,
  kind: "built",
  digest: `sha256:${"0".repeat(64)}`,
  owner: null,
  createdAt: "2026-01-01T00:00:00.000Z",
  layers: [`l${"b".repeat(20)}`],
  below: null,
  disk: null,
  config: {
    env: { A: "1" },
    workdir: "/app",
    user: null,
    entrypoint: null,
    cmd: ["sh"],
    exposedPorts: ["80/tcp"],
    labels: {},
    start: null,
    architecture: "amd64",
    os: "linux",
  },
  floor: { memoryBytes: 1, startPeakBytes: null, readyMs: null },
  parent: null,
  fromSandbox: null,
  buildId: null,
  limits: { memoryBytes: 1024 },
};

test("a record comes back as it was written, with fields that only later versions know", () => {
  expect(parseImageRecord(JSON.stringify({ ...record, later: 1 }), PATH)).toEqual({ ...record, later: 1 });
});

test("a record that is cut off anywhere is refused", () => {
  const text = JSON.stringify(record);
  for (let length = 0; length < text.length; length += 7) {
    expect(() => parseImageRecord(text.slice(0, length), PATH)).toThrow(/empty|not JSON/);
  }
});

test("a later version is told from damage", () => {
  expect(() => parseImageRecord(JSON.stringify({ version: 2 }), PATH)).toThrow(UnknownVersionError);
  expect(() => parseImageRecord(JSON.stringify({ version: "1" }), PATH)).not.toThrow(UnknownVersionError);
});

test.each([
  ["version", undefined],
  ["id", "../x"],
  ["kind", "other"],
  ["digest", "sha256:x"],
  ["owner", 1],
  ["createdAt", "yesterday"],
  ["layers", ["../../etc"]],
  ["layers", "l"],
  ["disk", undefined],
  ["config", { ...record.config, env: { A: 1 } }],
  ["config", null],
  ["parent", "img"],
  ["limits", { memoryBytes: -1 }],
])("a wrong %s is refused by name", (field, value) => {
  expect(() => parseImageRecord(JSON.stringify({ ...record, [field]: value }), PATH)).toThrow(`field ${field} `);
});

test.each(["null", "[]", "1", '"x"'])("%s is no record", (text) => {
  expect(() => parseImageRecord(text, PATH)).toThrow("not a record");
});

test("a record in another's place is refused", () => {
  expect(() => parseImageRecord(JSON.stringify(record), `/records/img${"c".repeat(20)}.json`)).toThrow("wrong place");
  const step = { version: 1, chain: `sha256:${"1".repeat(64)}`, layer: `l${"b".repeat(20)}` };
  expect(parseStepRecord(JSON.stringify(step), `/steps/${"1".repeat(64)}`)).toEqual(step);
  expect(() => parseStepRecord(JSON.stringify(step), `/steps/${"2".repeat(64)}`)).toThrow("wrong place");
});
