// Copying a part of an archive into a tree that is there already.
import assert from "node:assert/strict";
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { archive, dir, file, hardlink, symlink, unpack, useDirectory } from "./tar-archive.mjs";

const CONTEXT = archive(
  dir("src"),
  file("src/a.ts", "a"),
  file("src/.hidden.ts", "h"),
  file("src/b.js", "b"),
  dir("src/sub"),
  file("src/sub/c.ts", "c"),
  hardlink("src/sub/also-c", "src/sub/c.ts"),
  symlink("src/link", "a.ts"),
  file("README", "r"),
);

/** Names of all that is no directory. */
function files(top, below = "") {
  return readdirSync(join(top, below))
    .flatMap((name) => {
      const path = join(below, name);
      return lstatSync(join(top, path)).isDirectory() ? files(top, path) : [path];
    })
    .sort();
}

const selections = [
  ["src", [".hidden.ts", "a.ts", "b.js", "link", "sub/also-c", "sub/c.ts"]],
  ["./src/", [".hidden.ts", "a.ts", "b.js", "link", "sub/also-c", "sub/c.ts"]],
  ["src/*", [".hidden.ts", "a.ts", "b.js", "link", "sub/also-c", "sub/c.ts"]],
  ["src/*.ts", [".hidden.ts", "a.ts"]],
  ["src/[ab].?s", ["a.ts", "b.js"]],
  ["src/sub", ["also-c", "c.ts"]],
  ["src/a.ts", ["a.ts"]],
  ["src/link", ["link"]],
  ["README", ["README"]],
  ["*", ["README", "src/.hidden.ts", "src/a.ts", "src/b.js", "src/link", "src/sub/also-c", "src/sub/c.ts"]],
  [".", ["README", "src/.hidden.ts", "src/a.ts", "src/b.js", "src/link", "src/sub/also-c", "src/sub/c.ts"]],
  ["s*/sub", ["also-c", "c.ts"]],
  ["src/**", [".hidden.ts", "a.ts", "b.js", "link", "sub/also-c", "sub/c.ts"]],
  ["src/**/*.ts", [".hidden.ts", "a.ts", "sub/c.ts"]],
  ["**/c.ts", ["src/sub/c.ts"]],
];

for (const [glob, expected] of selections) {
  test(`${glob} selects ${expected.length} and keeps what comes after it`, (t) => {
    const into = useDirectory(t);
    const { status, json } = unpack(into, CONTEXT, "--select", glob);
    assert.equal(status, 0, JSON.stringify(json));
    assert.deepEqual(files(into), expected);
  });
}

test("several patterns select what any of them does", (t) => {
  const into = useDirectory(t);
  unpack(into, CONTEXT, "--select", "src/*.js", "--select", "README");
  assert.deepEqual(files(into), ["README", "b.js"]);
});

test("nothing selected is an error", (t) => {
  const into = useDirectory(t);
  for (const glob of ["nothing", "src/*.py", "README/x", "sr"]) {
    assert.equal(unpack(into, CONTEXT, "--select", glob).json.code, "no_match", glob);
  }
  assert.equal(unpack(into, CONTEXT, "--select", "../*").json.code, "hostile");
});

test("a file or a directory can get another name", (t) => {
  const into = useDirectory(t);
  unpack(into, CONTEXT, "--select", "src/a.ts", "--as", "new name");
  unpack(into, CONTEXT, "--select", "src/sub", "--as", "dir");
  assert.deepEqual(files(into), ["dir/also-c", "dir/c.ts", "new name"]);
  assert.equal(unpack(into, CONTEXT, "--select", "src/*", "--as", "x").json.code, "usage");
});

test("a hard link to what is not selected is refused", (t) => {
  const into = useDirectory(t);
  const { json } = unpack(into, CONTEXT, "--select", "src/sub/also-c");
  assert.deepEqual([json.code, json.entry], ["unsupported", "src/sub/also-c"]);
});

/** A tree with links, as images have them. */
function useImage(t) {
  const root = useDirectory(t);
  for (const path of ["usr/lib/old", "data", "tmp", "app"]) mkdirSync(join(root, path), { recursive: true });
  symlinkSync("usr/lib", join(root, "lib"));
  symlinkSync("/data", join(root, "app/data"));
  symlinkSync("/nowhere", join(root, "app/broken"));
  writeFileSync(join(root, "app/file"), "old");
  return root;
}

test("merging follows the links of the tree, as inside of it, and keeps its directories", (t) => {
  const root = useImage(t);
  const body = archive(
    dir("lib", { mode: 0o700 }),
    file("lib/new", "1"),
    dir("app", { mode: 0o700 }),
    file("app/data/x", "2"),
    file("app/file", "new"),
    file("app/broken", "3"),
  );
  const before = statSync(join(root, "app")).mode;
  const { status, json } = unpack("/", body, "--root", root, "--merge");
  assert.equal(status, 0, JSON.stringify(json));
  assert.equal(readlinkSync(join(root, "lib")), "usr/lib");
  assert.equal(readFileSync(join(root, "usr/lib/new"), "utf8"), "1");
  assert.equal(readFileSync(join(root, "data/x"), "utf8"), "2");
  assert.equal(readFileSync(join(root, "app/file"), "utf8"), "new");
  assert.equal(readFileSync(join(root, "app/broken"), "utf8"), "3");
  assert.equal(statSync(join(root, "app")).mode, before);
  assert.equal(unpack("/", archive(file("usr", "x")), "--root", root, "--merge").json.code, "EISDIR");
});

test("the place to copy to is looked up inside of the root, and made if asked", (t) => {
  const root = useImage(t);
  const options = ["--root", root, "--merge", "--make", "--owner", `${process.getuid()}`, "--mode", "0600"];
  assert.equal(unpack("/app/data/deep/er", CONTEXT, ...options, "--select", "src").status, 0);
  assert.equal(readFileSync(join(root, "data/deep/er/a.ts"), "utf8"), "a");
  assert.equal(statSync(join(root, "data/deep")).mode & 0o777, 0o700);
  assert.equal(unpack("/app/broken/x", CONTEXT, ...options, "--select", "src").json.code, "hostile");
  assert.equal(unpack("/app/../../x", CONTEXT, ...options, "--select", "src").json.code, "hostile");
});

test("a file that is to be called like a directory goes into it", (t) => {
  const root = useImage(t);
  const options = ["--root", root, "--merge", "--as", "data", "--select"];
  unpack("/app", CONTEXT, ...options, "README");
  unpack("/app", CONTEXT, ...options, "src/sub");
  assert.deepEqual(files(join(root, "data")), ["README", "also-c", "c.ts"]);
});
