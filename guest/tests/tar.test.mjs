// Packing and unpacking as such: formats, metadata, agreement with GNU tar.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
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
  pack,
  padded,
  pax,
  program,
  run,
  symlink,
  unpack,
  unpackStream,
  useDirectory,
} from "./tar-archive.mjs";

const isRoot = process.getuid() === 0;
const asRoot = { skip: isRoot ? false : "needs root" };

/** Everything that an archive keeps, by name. */
function look(top, below = "") {
  const found = {};
  for (const name of readdirSync(join(top, below)).sort()) {
    const path = join(below, name);
    const stat = lstatSync(join(top, path));
    const kind = stat.isFile() ? "file" : stat.isDirectory() ? "dir" : stat.isSymbolicLink() ? "link" : "other";
    found[path] = {
      kind,
      mode: stat.mode & 0o7777,
      owner: `${stat.uid}:${stat.gid}`,
      mtime: Math.floor(stat.mtimeMs / 1000),
      ...(kind === "file" && { content: readFileSync(join(top, path), "latin1"), links: stat.nlink }),
      ...(kind === "link" && { target: readlinkSync(join(top, path)) }),
    };
    if (kind === "dir") Object.assign(found, look(top, path));
  }
  return found;
}

function makeTree(top) {
  const long = "long".repeat(40);
  mkdirSync(join(top, "a/empty"), { recursive: true });
  mkdirSync(join(top, `${long}/${long}`), { recursive: true });
  writeFileSync(join(top, "a/file"), "content");
  writeFileSync(join(top, "a-b"), "");
  writeFileSync(join(top, "a/exact"), Buffer.alloc(1024, 7));
  writeFileSync(join(top, `${long}/${long}/${long}`), "deep");
  writeFileSync(join(top, "spaces and\nnewline \u00fcml\u00e4ut"), "x");
  linkSync(join(top, "a/file"), join(top, "z-hard"));
  symlinkSync("../outside", join(top, "link"));
  symlinkSync("t".repeat(300), join(top, "long-link"));
  execFileSync("mkfifo", [join(top, "fifo")]);
  chmodSync(join(top, "a/file"), 0o4755);
  chmodSync(join(top, "a"), 0o1777);
  chmodSync(join(top, "a/empty"), 0o2550);
  if (isRoot) chownSync(join(top, "a/exact"), 3_000_000, 4_000_000);
  lutimesSync(join(top, "link"), 1000, 2000.75);
  utimesSync(join(top, "a/file"), 1000, 1_234_567_890.5);
  utimesSync(join(top, "a-b"), 1000, -5);
  utimesSync(join(top, "a"), 1000, 86_400);
}

test("what is packed is unpacked again", (t) => {
  const [from, into] = [useDirectory(t), useDirectory(t)];
  makeTree(from);
  const packed = pack(from);
  assert.equal(packed.status, 0, packed.stderr);
  assert.equal(packed.json.bytes, packed.stdout.length);
  assert.equal(packed.json.entries, Object.keys(look(from)).length);
  const { status, json } = unpack(into, packed.stdout);
  assert.equal(status, 0, JSON.stringify(json));
  assert.deepEqual(look(into), look(from));
  assert.equal(statSync(join(into, "a/file")).ino, statSync(join(into, "z-hard")).ino);
});

test("the same tree gives the same bytes, and measure knows how many", (t) => {
  const [from, copy] = [useDirectory(t), useDirectory(t)];
  makeTree(from);
  unpack(copy, pack(from).stdout);
  assert.deepEqual(pack(copy).stdout, pack(from).stdout);
  const { json } = run(["measure", "--from", from, "--deletions", "overlay"]);
  assert.deepEqual(json, pack(from, "--deletions", "overlay").json);
});

test("entries are sorted, parents first, the top left out", (t) => {
  const from = useDirectory(t);
  for (const name of ["b", "a/z", "a/b", "a-c", "B"]) {
    mkdirSync(join(from, name, ".."), { recursive: true });
    writeFileSync(join(from, name), "");
  }
  const names = execFileSync("tar", ["-tf", "-"], { input: pack(from).stdout, encoding: "utf8" })
    .trim()
    .split("\n");
  assert.deepEqual(names, ["B", "a/", "a/b", "a/z", "a-c", "b"]);
});

test("GNU tar reads what we pack", (t) => {
  const [from, into] = [useDirectory(t), useDirectory(t)];
  makeTree(from);
  execFileSync("tar", ["-xpf", "-", "-C", into, "--numeric-owner"], { input: pack(from).stdout });
  assert.deepEqual(look(into), look(from));
});

for (const format of ["v7", "oldgnu", "gnu", "ustar", "pax"]) {
  test(`we read what GNU tar packs as ${format}`, (t) => {
    const [from, into] = [useDirectory(t), useDirectory(t)];
    makeTree(from);
    // These formats cannot say everything.
    if (["v7", "ustar"].includes(format)) {
      rmSync(join(from, "long-link"));
      rmSync(join(from, "long".repeat(40)), { recursive: true });
      utimesSync(join(from, "a-b"), 1, 1);
      if (isRoot) chownSync(join(from, "a/exact"), 7, 8);
      if (format === "v7") rmSync(join(from, "fifo"));
    }
    const args = ["-cf", "-", "-C", from, `--format=${format}`, "--numeric-owner", "."];
    const { status, json } = unpack(into, execFileSync("tar", args));
    assert.equal(status, 0, JSON.stringify(json));
    assert.deepEqual(look(into), look(from));
  });
}

test("PAX headers go before GNU's long names, those before the header, global ones last", (t) => {
  const into = useDirectory(t);
  const long = entry({ name: "././@LongLink", type: "L", data: "by-gnu\0" });
  const { json } = unpack(
    into,
    archive(
      pax({ mtime: "77", comment: "everywhere" }, "g"),
      pax({ path: "by-pax" }),
      long,
      file("x", "1"),
      long,
      file("y", "2"),
      pax({ mtime: "88.5" }),
      file("z", "3"),
      entry({ name: "././@LongLink", type: "K", data: `${"t".repeat(200)}\0` }),
      symlink("link", "short"),
    ),
  );
  assert.equal(json.entries, 4);
  assert.deepEqual(readdirSync(into).sort(), ["by-gnu", "by-pax", "link", "z"]);
  assert.equal(statSync(join(into, "by-pax")).mtimeMs, 77_000);
  assert.equal(statSync(join(into, "z")).mtimeMs, 88_500);
  assert.equal(readlinkSync(join(into, "link")), "t".repeat(200));
});

test("numbers may be octal with spaces or base 256", asRoot, (t) => {
  const into = useDirectory(t);
  const numbers = { uid: base256(3_000_000, 8), gid: " 17 \0", mtime: base256(-10, 12), size: base256(3, 12) };
  const { status, json } = unpack(into, archive(file("x", "abc", numbers)));
  assert.equal(status, 0, JSON.stringify(json));
  const stat = statSync(join(into, "x"));
  assert.deepEqual([stat.uid, stat.gid, stat.mtimeMs, stat.size], [3_000_000, 0o17, -10_000, 3]);
});

test("absolute names lose their slash, dots and doubled slashes go", (t) => {
  const into = useDirectory(t);
  unpack(into, archive(dir("./"), file("/etc//passwd", "x"), file("./a/./b", "y")));
  assert.equal(readFileSync(join(into, "etc/passwd"), "utf8"), "x");
  assert.equal(readFileSync(join(into, "a/b"), "utf8"), "y");
});

test("the last of several entries of one name counts", (t) => {
  const into = useDirectory(t);
  const { status } = unpack(
    into,
    archive(
      file("x", "first"),
      hardlink("y", "x"),
      file("x", "second"),
      dir("d", { mode: 0o700, mtime: 5 }),
      file("d/kept", ""),
      dir("d", { mode: 0o711, mtime: 9 }),
      symlink("s", "x"),
      file("s", "a file now"),
      dir("t"),
      file("t/gone/below", ""),
      symlink("t", "x"),
      hardlink("y", "y"),
    ),
  );
  assert.equal(status, 0);
  assert.equal(readFileSync(join(into, "x"), "utf8"), "second");
  assert.equal(readFileSync(join(into, "y"), "utf8"), "first");
  assert.equal(lstatSync(join(into, "d")).mode & 0o777, 0o711);
  assert.equal(lstatSync(join(into, "d")).mtimeMs, 9000);
  assert.ok(existsSync(join(into, "d/kept")));
  assert.ok(lstatSync(join(into, "s")).isFile());
  assert.equal(readlinkSync(join(into, "t")), "x");
});

test("a tree that is deeper than there are descriptors can be replaced", (t) => {
  const into = useDirectory(t);
  const down = Array.from({ length: 400 }, () => "d").join("/");
  const named = (records, body) => Buffer.concat([pax(records), body]);
  const body = [named({ path: down }, dir("x"))];
  // By way of links a tree grows deeper than any name.
  for (let at = 0; at < 6; at++) {
    const linkpath = at === 0 ? down : `l${at - 1}/${down}`;
    body.push(named({ linkpath }, symlink(`l${at}`, "x")), named({ path: `l${at}/${down}` }, dir("x")));
  }
  const { status, json } = unpack(into, archive(...body, file("d", "now a file")));
  assert.equal(status, 0, JSON.stringify(json));
  assert.equal(readFileSync(join(into, "d"), "utf8"), "now a file");
});

test("links inside the tree lead where they lead inside the tree", (t) => {
  const into = useDirectory(t);
  const { status } = unpack(
    into,
    archive(
      dir("usr/lib"),
      symlink("lib", "usr/lib"),
      symlink("abs", "/usr"),
      file("lib/a", "1"),
      file("abs/lib/b/c", "2"),
    ),
  );
  assert.equal(status, 0);
  assert.equal(readFileSync(join(into, "usr/lib/a"), "utf8"), "1");
  assert.equal(readFileSync(join(into, "usr/lib/b/c"), "utf8"), "2");
});

test("devices are skipped and counted, on both ways", asRoot, (t) => {
  const [from, into] = [useDirectory(t), useDirectory(t)];
  const { json } = unpack(into, archive(entry({ name: "c", type: "3" }), entry({ name: "b", type: "4" }), file("f")));
  assert.deepEqual(json, { entries: 3, bytes: 0, files: 1, skippedDevices: 2, skippedXattrs: 0 });
  assert.deepEqual(readdirSync(into), ["f"]);
  execFileSync("mknod", [join(from, "null"), "c", "1", "3"]);
  assert.equal(pack(from).json.skipped, 1);
});

test("only some extended attributes are kept", asRoot, (t) => {
  const [into, again] = [useDirectory(t), useDirectory(t)];
  const capability = Buffer.from("0100000200040000000000000000000000000000", "hex");
  const attributes = {
    "SCHILY.xattr.user.binary": Buffer.from([0, 10, 61, 255]),
    "SCHILY.xattr.user.empty": "",
    "SCHILY.xattr.security.capability": capability,
    "SCHILY.xattr.trusted.overlay.opaque": "y",
    "SCHILY.xattr.user.overlay.opaque": "y",
    "SCHILY.xattr.user.huge": Buffer.alloc(200_000),
  };
  const { json } = unpack(into, archive(pax(attributes), file("f", "x"), pax(attributes), dir("d")));
  assert.equal(json.skippedXattrs, 6, "two of overlays and the one that is too large, twice");
  const packed = pack(into, "--deletions", "overlay");
  assert.equal(packed.stdout.includes("trusted"), false);
  assert.ok(packed.stdout.includes(Buffer.concat([Buffer.from("user.binary="), Buffer.from([0, 10, 61, 255])])));
  assert.equal(unpack(again, packed.stdout).json.skippedXattrs, 0);
  assert.deepEqual(pack(again).stdout, packed.stdout);
  const listed = execFileSync("tar", ["--xattrs", "--xattrs-include=*", "-cf", "-", "-C", again, "f"], {
    encoding: "latin1",
  });
  for (const name of ["user.binary", "user.empty", "security.capability"]) assert.ok(listed.includes(name), name);
});

test("owner and mode can be set", asRoot, (t) => {
  const into = useDirectory(t);
  const body = archive(dir("d", { mode: 0o700, uid: 5 }), file("d/f", "x", { mode: 0o600 }), file("implied/f", "y"));
  const { status } = unpack(into, body, "--owner", "daemon:sys", "--mode", "0640");
  assert.equal(status, 0);
  const seen = (name) => {
    const { mode, uid, gid } = statSync(join(into, name));
    return [(mode & 0o7777).toString(8), uid, gid];
  };
  assert.deepEqual(seen("d"), ["750", 1, 3]);
  assert.deepEqual(seen("d/f"), ["640", 1, 3]);
  assert.deepEqual(seen("implied"), ["750", 1, 3]);
  unpack(into, body, "--owner", "1");
  assert.deepEqual(seen("d/f"), ["600", 1, 1]);
  unpack(into, body, "--owner", "54321");
  assert.deepEqual(seen("d/f"), ["600", 54321, 54321]);
  assert.equal(unpack(into, body, "--owner", "no-such-user").json.code, "unknown_user");
  assert.equal(unpack(into, body, "--owner", "0:no-such-group").json.code, "unknown_group");
});

test("who is not root gets files of their own", asRoot, (t) => {
  // Below /tmp itself: the other user has to reach it.
  const into = mkdtempSync(join(tmpdir(), "holdfast-tar-"));
  t.after(() => rmSync(into, { recursive: true, force: true }));
  chownSync(into, 65534, 65534);
  const copy = join(into, "..", `holdfast-tar-${process.pid}`);
  writeFileSync(copy, readFileSync(program), { mode: 0o755 });
  t.after(() => rmSync(copy, { force: true }));
  const input = archive(dir("d", { mode: 0o555, uid: 9, mtime: 3 }), file("d/f", "x", { mode: 0o4711 }), dir("d/e"));
  const done = spawnSync(copy, ["unpack", "--into", into, "--chroot"], { input, uid: 65534, gid: 65534 });
  assert.equal(done.status, 0, String(done.stderr));
  const { mode, uid, mtimeMs } = statSync(join(into, "d"));
  assert.deepEqual([mode & 0o777, uid, mtimeMs], [0o555, 65534, 3000]);
  assert.equal(statSync(join(into, "d/f")).mode & 0o7777, 0o4711);
});

test("sizes over 8 GiB go both ways", async (t) => {
  const [from, into] = [useDirectory(t), useDirectory(t)];
  const size = 9 * 2 ** 30;
  writeFileSync(join(from, "big"), "");
  truncateSync(join(from, "big"), size);
  const { json } = run(["measure", "--from", from]);
  assert.equal(json.bytes, 3 * 512 + size + 1024, "PAX header and its data, the header, the content, the end");
  // Not unpacked whole, that would be 9 GiB of disk: the limit is met when the header has been read.
  const head = spawnSync("sh", ["-c", `"$0" pack --from "$1" 2>/dev/null | head -c 1536`, program, from]);
  assert.equal(head.stdout.length, 1536);
  assert.equal(unpack(into, head.stdout, "--max-bytes", String(size - 1)).json.code, "too_large");
  assert.equal(unpack(into, head.stdout, "--max-bytes", String(size)).json.code, "truncated");
});

test("a large file arrives whole through a pipe", async (t) => {
  const into = useDirectory(t);
  const chunk = Buffer.alloc(1 << 20, "holdfast ");
  const { status, json } = await unpackStream(into, [], async (write) => {
    await write(entry({ name: "big", size: 64 * chunk.length }).subarray(0, 512));
    for (let at = 0; at < 64; at++) await write(chunk);
    await write(END);
  });
  assert.deepEqual([status, json.bytes], [0, 64 * chunk.length]);
  assert.ok(readFileSync(join(into, "big")).subarray(-chunk.length).equals(chunk));
});

test("what a tree has in the way is said, not passed over", asRoot, (t) => {
  const from = useDirectory(t);
  writeFileSync(join(from, ".wh.file"), "");
  assert.equal(pack(from).status, 0);
  assert.equal(pack(from, "--deletions", "overlay").json.code, "unsupported");
  rmSync(join(from, ".wh.file"));
  execFileSync("sh", ["-c", 'cd "$0" && for i in $(seq 520); do mkdir d && cd d || exit 1; done', from]);
  assert.equal(pack(from).json.code, "too_large");
});

test("a reader that goes away and a full disk are told apart", asRoot, (t) => {
  const [from, mount] = [useDirectory(t), useDirectory(t)];
  writeFileSync(join(from, "f"), Buffer.alloc(8 << 20));
  const cut = spawnSync("bash", ["-c", `"$0" pack --from "$1" | head -c 1000 >/dev/null`, program, from]);
  assert.equal(JSON.parse(String(cut.stderr)).code, "EPIPE");
  writeFileSync(join(from, "a.tar"), archive(file("f", Buffer.alloc(4 << 20))));
  const script = `mount -t tmpfs -o size=1m tmpfs "$2" && exec "$0" unpack --into "$2" < "$1"`;
  const full = spawnSync("unshare", ["-m", "sh", "-c", script, program, join(from, "a.tar"), mount]);
  assert.equal(full.status, 1);
  assert.deepEqual(JSON.parse(String(full.stderr)), {
    error: "write: No space left on device",
    entry: "f",
    code: "ENOSPC",
  });
});

test("padding after content is not content", (t) => {
  const into = useDirectory(t);
  unpack(into, archive(file("a", "x"), padded(Buffer.alloc(0)), file("b", Buffer.alloc(512, 1)), file("c", "")));
  assert.deepEqual(
    ["a", "b", "c"].map((name) => statSync(join(into, name)).size),
    [1, 512, 0],
  );
});
