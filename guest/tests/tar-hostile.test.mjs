// Archives that want to do harm, or are broken: each is refused by name, and nothing outside of the directory changes.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  archive,
  base256,
  dir,
  END,
  entry,
  file,
  hardlink,
  header,
  pax,
  run,
  symlink,
  unpack,
  useDirectory,
} from "./tar-archive.mjs";

const LONG_NAME = { name: "././@LongLink", type: "L" };

/** `into` lies in a directory with a secret beside it. */
function usePlaces(t) {
  const outer = useDirectory(t);
  const into = join(outer, "into");
  mkdirSync(into);
  writeFileSync(join(outer, "secret"), "untouched");
  return { outer, into };
}

function assertUntouched(outer) {
  assert.deepEqual(readdirSync(outer).sort(), ["into", "secret"]);
  assert.equal(readFileSync(join(outer, "secret"), "utf8"), "untouched");
}

const refused = {
  "a name that begins with ..": ["hostile", file("../secret", "x")],
  "a name with .. in the middle": ["hostile", file("a/../../secret", "x")],
  "an absolute name with ..": ["hostile", file("/../secret", "x")],
  "an empty name": ["hostile", file("", "x")],
  "a file in the place of the top": ["hostile", file("./", "x", { type: "7" })],
  "a link in the place of the top": ["hostile", symlink("/", "/etc")],
  "a PAX path with a NUL": ["hostile", pax({ path: "a\0b" }), file("x")],
  "a GNU long name with something behind its NUL": ["hostile", entry({ ...LONG_NAME, data: "a\0../b\0" }), file("x")],
  "a GNU long name with ..": ["hostile", entry({ ...LONG_NAME, data: "../secret\0" }), file("x")],
  "a PAX path with ..": ["hostile", pax({ path: "../secret" }), file("x")],
  "a hard link to ..": ["hostile", hardlink("x", "../secret")],
  "a hard link to nothing": ["hostile", hardlink("x", "nothing")],
  "a hard link to a directory": ["hostile", dir("d"), hardlink("x", "d")],
  "a hard link to the top": ["hostile", hardlink("x", "/")],
  "a hard link through a link out of the tree": ["hostile", symlink("out", ".."), hardlink("x", "out/secret")],
  "a file through a link to nothing": ["hostile", symlink("out", "/nowhere"), file("out/x", "x")],
  "a file through a link out of the tree": ["hostile", symlink("out", "../../nowhere"), file("out/x", "x")],
  "a file through a link to itself": ["hostile", symlink("a", "a"), file("a/x", "x")],
  "a file below a file": ["hostile", file("a", "x"), file("a/x", "x")],
  "a symbolic link without a target": ["hostile", symlink("a", "")],
  "a negative size": ["hostile", file("x", "", { size: base256(-1, 12) })],
  "a user id of -1": ["hostile", file("x", "", { uid: base256(0xffffffff, 8) })],
  "a user id that does not fit": ["hostile", pax({ uid: "4294967296" }), file("x")],
  "a PAX size that is no number": ["hostile", pax({ size: "-1" }), file("x")],
  "a PAX size that does not fit": ["hostile", pax({ size: "9223372036854775808" }), file("x")],
  "a global header that names every entry": ["hostile", pax({ path: "x" }, "g"), file("y")],
  "a name that says directory with content": ["hostile", file("x/", "content")],
  "a wrong checksum": ["corrupt", file("x", "", { checksumOff: 1 })],
  "a size that is no number": ["corrupt", file("x", "", { size: "12x4567\0" })],
  "a base 256 number that does not fit": ["corrupt", file("x", "", { size: base256(2n ** 80n, 12) })],
  "a PAX record that is longer than its header": [
    "corrupt",
    entry({ name: "p", type: "x", data: "99 path=x\n" }),
    file("x"),
  ],
  "a PAX record that is shorter than itself": [
    "corrupt",
    entry({ name: "p", type: "x", data: "3 path=x\n" }),
    file("x"),
  ],
  "a PAX record without a key": ["corrupt", entry({ name: "p", type: "x", data: "5 =x\n" }), file("x")],
  "a PAX record without a length": ["corrupt", entry({ name: "p", type: "x", data: "path=x\n" }), file("x")],
  "a PAX record of length 0": ["corrupt", entry({ name: "p", type: "x", data: "0 path=x\n" }), file("x")],
  "half an end in the middle": ["corrupt", file("x"), Buffer.alloc(512), file("y")],
  "a global header before a local one's entry": ["corrupt", pax({ path: "x" }), pax({ mtime: "1" }, "g"), file("y")],
  "an old GNU sparse file": ["unsupported", entry({ name: "x", type: "S" })],
  "a PAX sparse file": ["unsupported", pax({ "GNU.sparse.major": "1", "GNU.sparse.name": "../x" }), file("x")],
  "an older PAX sparse file": ["unsupported", pax({ "GNU.sparse.map": "0,1" }), file("x")],
  "a volume label": ["unsupported", entry({ name: "x", type: "V" })],
  "an unknown type": ["unsupported", entry({ name: "x", type: "Q" })],
  "a PAX header over 1 MiB": ["too_large", entry({ name: "p", type: "x", size: (1 << 20) + 1 }), file("x")],
  "a PAX header said to be of 8 EiB": ["too_large", header({ name: "p", type: "x", size: base256(2n ** 62n, 12) })],
  "a GNU long name over 1 MiB": ["too_large", header({ ...LONG_NAME, size: 1 << 21 })],
  "many extension headers of one entry": [
    "too_large",
    ...Array(3).fill(pax({ comment: "x".repeat(400_000) })),
    file("x"),
  ],
  "many global headers": ["too_large", ...Array(3).fill(pax({ comment: "x".repeat(400_000) }, "g")), file("x")],
  "a name over 4095 bytes": ["too_large", pax({ path: `${"abcdefg/".repeat(511)}abcdefgh` }), file("x")],
  "a name of over 512 parts": ["too_large", pax({ path: "a/".repeat(513) }), file("x")],
  "a part of a name over 255 bytes": ["too_large", pax({ path: "x".repeat(256) }), file("x")],
  "a link's target over 4095 bytes": ["too_large", pax({ linkpath: "x".repeat(4096) }), symlink("x", "y")],
  "an extension header without an entry": ["truncated", pax({ path: "x" })],
};

for (const [what, [code, ...parts]] of Object.entries(refused)) {
  test(`${what} is refused as ${code}`, (t) => {
    const { outer, into } = usePlaces(t);
    for (const more of [[], ["--chroot"], ["--lenient-end"]]) {
      const { status, json } = unpack(into, archive(...parts), ...more);
      assert.deepEqual([status, json.code], [1, code], JSON.stringify(json));
      assert.ok(json.error.length > 0);
      assertUntouched(outer);
    }
  });
}

test("a link that leads out leads to the top instead, with and without chroot", (t) => {
  const { outer, into } = usePlaces(t);
  const body = archive(
    symlink("up", "../../../../../.."),
    file("up/secret", "a"),
    symlink("etc", outer),
    dir(`${outer.slice(1)}`),
    file("etc/secret", "b"),
    symlink("self", "/proc/self/root"),
  );
  for (const more of [[], ["--chroot"]]) {
    const { status, json } = unpack(into, body, ...more);
    assert.equal(status, 0, JSON.stringify(json));
    assertUntouched(outer);
    assert.equal(readFileSync(join(into, "secret"), "utf8"), "a");
    assert.equal(readFileSync(join(into, outer, "secret"), "utf8"), "b");
  }
});

test("a link is not written through", (t) => {
  const { outer, into } = usePlaces(t);
  const target = join(outer, "secret");
  const body = archive(
    symlink("a", target),
    file("a", "new"),
    symlink("b", target),
    dir("b"),
    file("b/x", "new"),
    symlink("c", target),
    hardlink("d", "c"),
    file("d", "new"),
    symlink("e", ".."),
    symlink("e", "nowhere"),
    dir("f", { mode: 0o700 }),
    symlink("f", ".."),
  );
  assert.equal(unpack(into, body).status, 0);
  assertUntouched(outer);
});

test("what was there before is not written through either", (t) => {
  const { outer, into } = usePlaces(t);
  assert.equal(unpack(into, archive(symlink("link", join(outer, "secret")), symlink("dir", outer))).status, 0);
  assert.equal(unpack(into, archive(file("link", "new"), dir("dir"), file("dir/secret", "new"))).status, 0);
  assertUntouched(outer);
});

test("an archive that ends too early is not taken for a whole one", (t) => {
  const { into } = usePlaces(t);
  const whole = archive(file("a", "x".repeat(700)), pax({ path: "b" }), file("x", "y"));
  for (let length = 0; length < whole.length; length += 128) {
    const strict = unpack(into, whole.subarray(0, length));
    assert.deepEqual([strict.status, strict.json.code], [1, "truncated"], `${length}`);
    // After the first entry (1536), after the second (4 more blocks), after half of the end.
    const lenient = unpack(into, whole.subarray(0, length), "--lenient-end");
    assert.equal(
      lenient.status === 0,
      [1536, 3584, 4096].includes(length),
      `${length} ${JSON.stringify(lenient.json)}`,
    );
  }
  assert.equal(unpack(into, Buffer.alloc(1024)).status, 0);
  assert.equal(unpack(into, whole).status, 0);
});

test("what follows the end is read but not looked at", (t) => {
  const { into } = usePlaces(t);
  const body = Buffer.concat([archive(file("a")), file("b"), Buffer.alloc(3 << 20, 1)]);
  assert.equal(unpack(into, body).status, 0);
  assert.deepEqual(readdirSync(into), ["a"]);
  assert.equal(unpack(into, body, "--max-bytes", "1000000").json.code, "too_large");
});

test("limits hold", (t) => {
  const { into } = usePlaces(t);
  const body = archive(file("a", "12345"), file("b", "12345"), dir("c/d/e"));
  const attempts = [
    ["--max-bytes", "9", "too_large"],
    ["--max-bytes", "10", undefined],
    ["--max-entries", "2", "too_large"],
    ["--max-entries", "3", undefined],
    ["--max-depth", "2", "too_large"],
    ["--max-depth", "3", undefined],
  ];
  for (const [option, value, code] of attempts) {
    assert.equal(unpack(into, body, option, value).json.code, code, `${option} ${value}`);
  }
  const globals = Array(50).fill(pax({ comment: "x" }, "g"));
  assert.equal(unpack(into, archive(...globals), "--max-entries", "49").json.code, "too_large");
});

test("a failure is one line of JSON whatever the entry is called", (t) => {
  const { into } = usePlaces(t);
  const name = Buffer.from([0x22, 0x5c, 0x0a, 0xff, 0xc3, 0xa4, 0xed, 0xa0, 0x80, 0x2f, 0x2e, 0x2e]);
  const { json } = unpack(into, archive(file(name, "x")));
  assert.equal(json.entry, '"\\\n\ufffdä\ufffd\ufffd\ufffd/..');
});

test("wrong arguments are refused", (t) => {
  const { into } = usePlaces(t);
  const wrong = [
    [],
    ["untar"],
    ["unpack"],
    ["unpack", "--into"],
    ["unpack", "--into", into, "more"],
    ["unpack", "--into", into, "--max-bytes", "-1"],
    ["unpack", "--into", into, "--max-bytes", "18446744073709551616"],
    ["unpack", "--into", into, "--mode", "789"],
    ["unpack", "--into", into, "--mode", "17777"],
    ["unpack", "--into", into, "--deletions", "aufs"],
    ["unpack", "--into", into, "--owner", ":5"],
    ["unpack", "--into", into, "--as", "x"],
    ["unpack", "--into", into, "--as", "a/b", "--select", "x"],
    ["unpack", "--into", into, "--as", "..", "--select", "x"],
    ["unpack", "--into", into, "--make"],
    ["pack"],
    ["pack", "--into", into],
  ];
  for (const args of wrong) assert.equal(run(args, { input: END }).json.code, "usage", args.join(" "));
  assert.equal(run(["unpack", "--into", join(into, "missing")], { input: END }).json.code, "ENOENT");
  assert.equal(existsSync(join(into, "missing")), false);
});
