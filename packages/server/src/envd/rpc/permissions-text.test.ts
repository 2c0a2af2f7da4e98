import { expect, test } from "vitest";
import { permissionsText } from "./permissions-text.js";

test.each([
  ["file", 0o644, "-rw-r--r--"],
  ["file", 0o000, "----------"],
  ["file", 0o4755, "urwxr-xr-x"],
  ["file", 0o6711, "ugrwx--x--x"],
  ["directory", 0o755, "drwxr-xr-x"],
  ["directory", 0o1777, "dtrwxrwxrwx"],
  ["directory", 0o2770, "dgrwxrwx---"],
  ["symlink", 0o777, "Lrwxrwxrwx"],
  ["other", 0o600, "?rw-------"],
  ["other", 0o4600, "u?rw-------"],
] as const)("a %s of mode %o is %s", (type, mode, text) => {
  expect(permissionsText(type, mode)).toBe(text);
});
