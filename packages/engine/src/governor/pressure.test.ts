import { expect, test } from "vitest";
import { parseStall, stallPercent } from "./pressure.js";

test("the kernel's figures are read", () => {
  const text =
    "some avg10=12.34 avg60=1.00 avg300=0.00 total=224518384\nfull avg10=5.00 avg60=0.00 avg300=0.00 total=152734191\n";
  expect(parseStall(text)).toEqual({ some: 12.34, full: 5 });
});

test("what is not the kernel's gives no figures", () => {
  for (const text of ["", "some", "some avg10=x avg60", "full avg10=1.00 avg60=0.00"]) {
    expect(parseStall(text)).toBeUndefined();
  }
  expect(parseStall("some avg10=3.00 avg60=0.00 avg300=0.00 total=1\n")).toEqual({ some: 3, full: 0 });
});

test("time in which nothing went on counts whole, other time half", () => {
  expect(stallPercent({ some: 40, full: 10 })).toBe(20);
  expect(stallPercent({ some: 40, full: 35 })).toBe(35);
});
