import type { DoctorRow } from "@holdfast/engine";
import { expect, test } from "vitest";
import { coloursFor } from "../text/colours.js";
import { formatReport } from "./doctor.js";

const plain = coloursFor({ isTTY: false }, {});
const good: DoctorRow = { name: "kernel", state: "ok", by: "Linux 6.1", required: true };
const bad: DoctorRow = {
  name: "bubblewrap",
  state: "missing",
  by: "not installed",
  remedy: "apt-get install it",
  required: true,
};

test("a good host is a table and a verdict", () => {
  expect(formatReport({ ok: true, rows: [good] }, plain)).toMatchInlineSnapshot(`
    "what    state  by
    kernel  ok     Linux 6.1

    The bubblewrap engine holds its promises here.
    "
  `);
});

test("what is missing has its remedy below it, and the verdict names it", () => {
  expect(formatReport({ ok: false, rows: [good, bad] }, plain)).toMatchInlineSnapshot(`
    "what        state    by
    kernel      ok       Linux 6.1
    bubblewrap  missing  not installed
                         remedy: apt-get install it

    The bubblewrap engine cannot hold its promises here: bubblewrap.
    "
  `);
});

test("what is weak is named, and the host is well all the same", () => {
  const weak: DoctorRow = { name: "pressure", state: "weak", by: "none", remedy: "Boot with psi=1.", required: false };
  expect(formatReport({ ok: true, rows: [weak] }, plain)).toContain("Less good than it could be: pressure.");
});
