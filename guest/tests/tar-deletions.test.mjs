// Layers: what OCI's archives say by names, overlayfs says by devices and attributes.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  archive,
  dir,
  entry,
  file,
  hardlink,
  pack,
  program,
  run,
  symlink,
  unpack,
  useDirectory,
} from "./tar-archive.mjs";

const asRoot = { skip: process.getuid() === 0 ? false : "needs root" };
const OVERLAY = ["--deletions", "overlay"];

function isWhiteout(path) {
  const stat = lstatSync(path);
  return stat.isCharacterDevice() && stat.rdev === 0;
}

function namesIn(bytes) {
  return execFileSync("tar", ["-tf", "-"], { input: bytes, encoding: "utf8" }).trim().split("\n").filter(Boolean);
}

/** What a reader sees of the layers, the lowest first. */
function listOverlay(t, ...layers) {
  const place = useDirectory(t);
  const lowers = layers.toReversed().join(":");
  const script = 'mount -t overlay overlay -o "lowerdir=$1" "$2" && cd "$2" && find . -mindepth 1 | sort';
  return execFileSync("unshare", ["-m", "sh", "-c", script, "sh", lowers, place], { encoding: "utf8" })
    .trim()
    .split("\n");
}

test("deletions become overlayfs's own, and work", asRoot, (t) => {
  const [lower, upper] = [useDirectory(t), useDirectory(t)];
  unpack(
    lower,
    archive(file("gone"), file("dir/a"), file("dir/b"), file("opaque/old"), file("tree/x/y"), file("kept")),
  );
  const body = archive(
    file(".wh.gone"),
    file("dir/.wh.a"),
    file("opaque/.wh..wh..opq"),
    file("opaque/new"),
    file(".wh.tree"),
    file(".wh..wh.plnk"),
  );
  const { status, json } = unpack(upper, body, ...OVERLAY);
  assert.equal(status, 0, JSON.stringify(json));
  assert.ok(isWhiteout(join(upper, "gone")));
  assert.deepEqual(readdirSync(upper).sort(), ["dir", "gone", "opaque", "tree"]);
  assert.deepEqual(listOverlay(t, lower, upper), ["./dir", "./dir/b", "./kept", "./opaque", "./opaque/new"]);
  const packed = pack(upper, ...OVERLAY);
  assert.deepEqual(namesIn(packed.stdout), [
    "dir/",
    "dir/.wh.a",
    ".wh.gone",
    "opaque/",
    "opaque/.wh..wh..opq",
    "opaque/new",
    ".wh.tree",
  ]);
  assert.deepEqual(run(["measure", "--from", upper, ...OVERLAY]).json, packed.json);
  const again = useDirectory(t);
  unpack(again, packed.stdout, ...OVERLAY);
  assert.deepEqual(pack(again, ...OVERLAY).stdout, packed.stdout);
});

for (const [order, arrange] of [
  ["before", (mark, rest) => [mark, ...rest]],
  ["after", (mark, rest) => [...rest, mark]],
]) {
  test(`an entry wins over a deletion of its name ${order} it`, asRoot, (t) => {
    const [lower, upper] = [useDirectory(t), useDirectory(t)];
    unpack(lower, archive(file("f", "old"), file("d/old"), file("e/old"), file("s/old")));
    const parts = [
      ...arrange(file(".wh.f"), [file("f", "new")]),
      ...arrange(file(".wh.d"), [dir("d"), file("d/new")]),
      ...arrange(file(".wh.e"), [file("e/new")]),
      ...arrange(file(".wh.s"), [symlink("s", "d")]),
    ];
    const { status, json } = unpack(upper, archive(...parts), ...OVERLAY);
    assert.equal(status, 0, JSON.stringify(json));
    assert.deepEqual(listOverlay(t, lower, upper), ["./d", "./d/new", "./e", "./e/new", "./f", "./s"]);
    assert.equal(readFileSync(join(upper, "f"), "utf8"), "new");
  });
}

test("a layer that deletes everything below says so", asRoot, (t) => {
  const into = useDirectory(t);
  const { json } = unpack(into, archive(file(".wh..wh..opq"), file("d/.wh..wh..opq")), ...OVERLAY);
  assert.equal(json.opaque, true);
  assert.deepEqual(namesIn(pack(into, ...OVERLAY).stdout), [".wh..wh..opq", "d/", "d/.wh..wh..opq"]);
  const other = useDirectory(t);
  assert.equal(unpack(other, archive(file("d/.wh..wh..opq")), ...OVERLAY).json.opaque, undefined);
});

test("without the option these names are files", (t) => {
  const into = useDirectory(t);
  unpack(into, archive(file(".wh.x", "1"), file("d/.wh..wh..opq", "2")));
  assert.equal(readFileSync(join(into, ".wh.x"), "utf8"), "1");
  assert.ok(existsSync(join(into, "d/.wh..wh..opq")));
});

test("nonsense deletions are refused", asRoot, (t) => {
  const bad = [
    [file(".wh.")],
    [file(".wh..")],
    [file(".wh...")],
    [file(".wh.d/x")],
    [file("a/.wh..wh..opq/x")],
    [file(".wh.x"), hardlink("y", "x")],
    [file(".wh.x"), hardlink("y", ".wh.x")],
  ];
  for (const parts of bad) {
    const into = useDirectory(t);
    const { json } = unpack(into, archive(...parts), ...OVERLAY);
    assert.equal(json.code, "hostile", JSON.stringify(json));
  }
  const into = useDirectory(t);
  assert.equal(unpack(into, archive(entry({ name: "x", type: "3" })), ...OVERLAY).json.skippedDevices, 1);
  assert.deepEqual(readdirSync(into), []);
});

test("what a real overlay leaves behind is packed as a layer", asRoot, (t) => {
  const outer = useDirectory(t);
  const [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map((name) => join(outer, name));
  for (const path of [lower, upper, work, merged]) mkdirSync(path);
  unpack(lower, archive(file("a"), file("b"), file("c"), file("d/x"), file("e/x"), file("k/x")));
  const script =
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4" && cd "$4" && ' +
    "rm a b c && rm -r d e && mkdir e && echo new > e/y && ln e/y z";
  execFileSync("unshare", ["-m", "sh", "-c", script, "sh", lower, upper, work, merged]);
  const names = namesIn(pack(upper, ...OVERLAY).stdout);
  assert.deepEqual(names, [".wh.a", ".wh.b", ".wh.c", ".wh.d", "e/", "e/.wh..wh..opq", "e/y", "z"]);
});

test("a directory whose files overlayfs left elsewhere is refused", asRoot, (t) => {
  const from = useDirectory(t);
  mkdirSync(join(from, "moved"));
  const set = spawnSync("python3", [
    "-c",
    "import os,sys; os.setxattr(sys.argv[1], 'trusted.overlay.redirect', b'/old')",
    join(from, "moved"),
  ]);
  if (set.status !== 0) return t.skip("no python3");
  assert.equal(pack(from).status, 0);
  const { json } = pack(from, ...OVERLAY);
  assert.deepEqual([json.code, json.entry], ["unsupported", "moved"]);
});

test("a file that changes while it is packed keeps the archive whole and is reported", (t) => {
  const from = useDirectory(t);
  writeFileSync(join(from, "a"), Buffer.alloc(16 << 20, 1));
  writeFileSync(join(from, "b"), "after");
  // The archive's beginning fills the pipe, so the file is still being read when it is cut.
  const script = '("$0" pack --from "$1"; echo $? >&2) | (sleep 0.3; : > "$1/a"; cat > "$2")';
  const out = join(useDirectory(t), "out.tar");
  const { stderr } = spawnSync("sh", ["-c", script, program, from, out]);
  const [line, status] = String(stderr).trim().split("\n");
  assert.equal(status, "1");
  assert.deepEqual([JSON.parse(line).code, JSON.parse(line).entry], ["changed", "a"]);
  const into = useDirectory(t);
  assert.equal(unpack(into, readFileSync(out)).status, 0);
  assert.equal(lstatSync(join(into, "a")).size, 16 << 20);
  assert.equal(readFileSync(join(into, "b"), "utf8"), "after");
  linkSync(join(from, "b"), join(from, "c"));
  renameSync(join(from, "b"), join(from, "d"));
  rmSync(join(from, "a"));
  assert.equal(pack(from).json.entries, 2);
});
