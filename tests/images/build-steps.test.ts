/** Every kind of step does what it says, whatever the strings. */
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { RecipeStep } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { temporaryDirectory } from "../helpers/use-images.js";
import { logOf, MIB, outputOf, recipe, run, useBuilds } from "./build-helper.js";

const HOSTILE = [
  "requests>=2.31",
  "two words",
  `'single' "double"`,
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a shell's, not ours.
  "$HOME `id` $(id) ${PATH}",
  "line\nbreak\ttab",
  "; rm -rf / #",
  "*",
  "\\back\\",
  "ünï\u{1F600}",
  "",
  "--flag=-x",
];

/** A program that writes down how it was called, and as whom. */
const RECORDER = `#!/bin/sh
{ printf '%s\\0' "$@"; printf '%s\\0' "$DEBIAN_FRONTEND/$PIP_BREAK_SYSTEM_PACKAGES/$(id -u)"; } >>/calls
`;

describe("a step", () => {
  const use = useBuilds();

  it("runs a command line, and what it has written is in the image", async () => {
    const build = await use.start([run("echo hello; echo there >&2; echo content >/file")]);
    const image = await build.image;
    expect((await outputOf(build)).sort()).toEqual(["hello", "there"]);
    expect((await use.inside(image, "cat /file")).stdout).toBe("content\n");
    expect(image).toMatchObject({ kind: "built", owner: null, parent: use.tiny.id, buildId: build.id, disk: null });
    expect(image.floor).toEqual({ memoryBytes: 64 * MIB, startPeakBytes: null, readyMs: null });
    const info = build.info();
    expect(info).toMatchObject({
      state: "ready",
      imageId: image.id,
      digest: image.digest,
      cached: false,
      failure: null,
    });
    expect(info.steps).toMatchObject([
      { step: "base", title: "FROM tiny", state: "done" },
      { step: "1", title: "RUN echo hello; echo there >&2; echo content >/file", state: "done" },
      { step: "finalize", state: "done" },
    ]);
    expect(info.steps[1]?.memoryPeakBytes).toBeGreaterThan(0);
  });

  it("passes every argument as it is", async () => {
    const script = 'for argument; do printf "%s\\0" "$argument"; done >/arguments';
    const image = await use.build([
      { kind: "exec", argv: ["/bin/sh", "-c", script, "sh", ...HOSTILE] },
      ...HOSTILE.filter((text) => text !== "").map(
        (text): RecipeStep => ({
          kind: "exec",
          argv: ["/bin/sh", "-c", 'printf "%s\\0" "$1" >>/each', "sh", text],
        }),
      ),
      { kind: "env", variables: Object.fromEntries(HOSTILE.map((text, index) => [`V${index}`, text])) },
      run(
        HOSTILE.map((_, index) => `printf '%s\\0' "$V${index}"`)
          .join(" && ")
          .replace(/$/, "")
          .replace(/^(.*)$/s, "{ $1; } >/values"),
      ),
    ]);
    const { stdout } = await use.inside(image, "cat /arguments; echo; cat /values; echo; cat /each");
    const [args, values, each] = stdout.split("\0\n");
    expect(args?.split("\0")).toEqual(HOSTILE);
    expect(values?.split("\0")).toEqual(HOSTILE);
    expect(each?.split("\0").slice(0, -1)).toEqual(HOSTILE.filter((text) => text !== ""));
  });

  it("hands the names of packages over as they are, as root and without questions", async () => {
    const packages = HOSTILE.filter((text) => text.trim() !== "" && !text.startsWith("-"));
    const program = { content: RECORDER, mode: 0o755 };
    const programs = { "apt-get": program, python3: program, npm: program };
    const image = await use.build([
      { kind: "copy", tree: await use.addTree(programs), to: "/bin" },
      { kind: "user", name: "user" },
      { kind: "apt", packages },
      { kind: "pip", packages, indexUrl: "http://index.test:8000/simple" },
      { kind: "npm", packages, registryUrl: "http://registry.test/" },
    ]);
    const calls = (await use.inside(image, "cat /calls")).stdout.split("\0");
    const apt = ["install", "-y", "--no-install-recommends", "--", ...packages, "noninteractive//0"];
    const pip = ["-m", "pip", "install", "--no-cache-dir", "--index-url=http://index.test:8000/simple"];
    const npm = [
      "install",
      "-g",
      "--no-fund",
      "--no-audit",
      "--no-update-notifier",
      "--registry=http://registry.test/",
    ];
    expect(calls).toEqual([
      ...["update", "noninteractive//0", ...apt, "clean", "noninteractive//0"],
      ...[...pip, "--trusted-host=index.test", "--", ...packages, "/1/0"],
      ...[...npm, "--", ...packages, "//0"],
      "",
    ]);
  });

  it("leaves variables, directory and user in force for what comes after it", async () => {
    const image = await use.build([
      { kind: "env", variables: { A: "1", B: "two words" } },
      // biome-ignore lint/suspicious/noTemplateCurlyInString: a Dockerfile's, not ours.
      { kind: "env", variables: { A: "${A}+${B:-none}", P: "/opt/bin:$PATH" }, expand: true },
      { kind: "user", name: "user" },
      { kind: "workdir", path: "/deep/er" },
      { kind: "workdir", path: "inner" },
      { ...run('echo "$A|$P|$X|$B|$(id -un)|$PWD" >note'), env: { X: "of the step", B: "loses" } } as RecipeStep,
      { ...run('id -un >"/deep/er/inner/by root"'), user: "root" } as RecipeStep,
      { kind: "entrypoint", argv: ["/bin/sh", "-c"] },
      { kind: "cmd", argv: ["echo"] },
      { kind: "expose", ports: ["8000/tcp"] },
      { kind: "label", labels: { "a.b": "c" } },
    ]);
    expect(image.config).toMatchObject({
      workdir: "/deep/er/inner",
      user: "user",
      entrypoint: ["/bin/sh", "-c"],
      cmd: ["echo"],
      exposedPorts: ["8000/tcp"],
      labels: { "a.b": "c" },
    });
    const { stdout } = await use.inside(
      image,
      'cat note "by root"; echo "$A $PWD $(id -un)"; stat -c %U /deep /deep/er .',
    );
    const path = use.tiny.config.env.PATH;
    expect(stdout).toBe(
      `1+two words|/opt/bin:${path}|of the step|two words|user|/deep/er/inner\nroot\n1+two words /deep/er/inner user\nuser\nuser\nuser\n`,
    );
  });

  it("makes a user where there is none, also without useradd, and once only", async () => {
    const image = await use.build([
      { kind: "user", name: "ada", create: true },
      { kind: "user", name: "user", create: true },
      { kind: "user", name: "ada", create: true },
      run("id -un >~/me; echo $HOME"),
    ]);
    expect(
      (await use.inside(image, "id; cat /home/ada/me; stat -c %U:%G /home/ada; grep -c ada /etc/passwd")).stdout,
    ).toBe("uid=1001(ada) gid=1001(ada) groups=1001(ada)\nada\nada:ada\n1\n");
  });

  it("fails for a user that the image does not know, with the step, the user and what to do", async () => {
    const build = await use.start([{ kind: "run", command: "whoami", user: "root123" }]);
    await expect(build.image).rejects.toMatchObject({
      code: "build_failed",
      message: 'step 1 (RUN whoami) failed: the image has no user "root123"',
      hint: expect.stringContaining("RUN useradd -m root123"),
      details: { step: "1" },
    });
  });

  it("copies a tree with its modes and links, into a directory of the image through its own links", async () => {
    const tree = await use.addTree({
      dir: { mode: 0o750 },
      "dir/run.sh": { content: "#!/bin/sh\necho ran\n", mode: 0o755 },
      "dir/secret": { content: "s", mode: 0o600 },
      "dir/link": { target: "run.sh" },
      "odd name\n$x": "odd",
      [`${"long".repeat(40)}`]: "long",
    });
    const image = await use.build([
      run("mkdir -p /real/kept && echo old >/real/kept/old && ln -s real /linked && ln -s /etc /real/dir2"),
      { kind: "copy", tree, to: "/linked" },
      { kind: "copy", tree, to: "owned/", owner: "user", mode: 0o711 },
    ]);
    const { stdout } = await use.inside(
      image,
      `cd /real; ./dir/link; cat kept/old; cat 'odd name
$x'; echo; cat ${"long".repeat(40)}; echo; readlink dir/link; stat -c '%a %U' dir dir/run.sh dir/secret
       stat -c '%a %U:%G %n' /owned /owned/dir /owned/dir/secret; test -L /linked && echo still a link`,
    );
    expect(stdout).toBe(
      [
        ...["ran", "old", "odd", "long", "run.sh", "750 root", "755 root", "600 root"],
        ...["711 user:user /owned", "711 user:user /owned/dir", "711 user:user /owned/dir/secret", "still a link", ""],
      ].join("\n"),
    );
  });

  it("copies a single file to its place, or into a directory by its name", async () => {
    const tree = await use.addTree({ "": { content: "single", mode: 0o640 } });
    const image = await use.build([
      { kind: "workdir", path: "/work" },
      { kind: "copy", tree, to: "/new/place.txt" },
      { kind: "copy", tree, to: "relative" },
      { kind: "copy", tree, to: "/etc", name: "by-name" },
      { kind: "copy", tree, to: "./", name: "here" },
    ]);
    const { stdout } = await use.inside(image, "cd /; head -c 99 new/place.txt work/relative etc/by-name work/here");
    expect(stdout.match(/single/g)).toHaveLength(4);
    const into = await use.start([{ kind: "copy", tree, to: "/etc" }]);
    await expect(into.image).rejects.toMatchObject({ code: "build_failed", details: { step: "1" } });
    await expect(use.start([{ kind: "copy", tree, to: "/etc/" }])).rejects.toMatchObject({ code: "invalid_argument" });
  });

  it.each(["gzip", "plain"])("copies what a pattern picks from an archive (%s)", async (kind) => {
    const context = temporaryDirectory();
    mkdirSync(join(context, "folder/sub"), { recursive: true });
    writeFileSync(join(context, "folder/a.txt"), "a");
    writeFileSync(join(context, "folder/sub/b.txt"), "b", { mode: 0o755 });
    writeFileSync(join(context, "other"), "no");
    symlinkSync("a.txt", join(context, "folder/link"));
    const flags = kind === "gzip" ? "-cz" : "-c";
    const archive = await use.addBlob(execFileSync("tar", [flags, "-C", context, "folder", "other"]));
    const copy = (from: string, to: string): RecipeStep => ({ kind: "copy-archive", archive, from, to });
    const image = await use.build([
      copy("folder/*", "/glob/"),
      copy("folder", "/whole"),
      copy("folder/a.txt", "/one/renamed"),
      copy("folder/a.txt", "/two/"),
      { ...copy("folder/sub/b.txt", "/etc"), owner: "user", mode: 0o700 } as RecipeStep,
    ]);
    const { stdout } = await use.inside(
      image,
      "cd /; cat glob/a.txt glob/sub/b.txt whole/a.txt whole/link one/renamed two/a.txt etc/b.txt; stat -c %a:%U etc/b.txt; ls one",
    );
    expect(stdout).toBe("abaaaab700:user\nrenamed\n");
    const nothing = await use.start([copy("missing*", "/x")]);
    await expect(nothing.image).rejects.toMatchObject({
      message: expect.stringContaining("nothing in the archive is selected"),
    });
  });

  it("copies from a stage and from another image", async () => {
    const made = run(
      "mkdir -p /out/sub && echo bin >/out/app && chmod 755 /out/app && echo lib >/out/sub/lib && ln -s app /out/link && chown 1000:1000 /out/app",
    );
    const other = await use.build([run("echo other >/other")]);
    use.store.setName({ owner: null, name: "other", tag: "v1" }, other.id);
    const from = { kind: "stage", index: 0 } as const;
    const build = await use.start([], {
      recipe: recipe(
        [
          { kind: "copy-from", source: from, paths: ["/out"], to: "/all", owner: "keep" },
          { kind: "copy-from", source: from, paths: ["/out/app"], to: "/place" },
          { kind: "copy-from", source: from, paths: ["/out/a*", "/out/s?b"], to: "/some/" },
          { kind: "copy-from", source: { kind: "image", name: "other:v1" }, paths: ["/other"], to: "/etc" },
        ],
        {
          stages: [
            { base: { kind: "image", name: "tiny" }, steps: [made] },
            { base: { kind: "image", name: "tiny" }, steps: [run("false")] },
          ],
        },
      ),
    });
    const image = await build.image;
    const { stdout } = await use.inside(
      image,
      "cd /; cat all/app all/sub/lib all/link place some/app some/lib etc/other; stat -c %a:%U all/app place some/app; ls /out 2>&1",
    );
    expect(stdout).toBe(
      "bin\nlib\nbin\nbin\nbin\nlib\nother\n755:user\n755:root\n755:root\nls: /out: No such file or directory\n",
    );
    // The stage that nothing is copied from is none of its business.
    expect(build.info().steps.map(({ step }) => step)).toEqual(["base", "1", "2", "3", "4", "5", "finalize"]);
    const missing = await use.start([
      { kind: "copy-from", source: { kind: "image", name: "tiny" }, paths: ["/no*"], to: "/x" },
    ]);
    await expect(missing.image).rejects.toMatchObject({ message: expect.stringContaining("there is no /no* to copy") });
  });

  it("needs no shell where it only copies", async () => {
    const empty = await use.addLayer((directory) => mkdirSync(join(directory, "data")));
    const bare = await use.addImage({ layers: [empty] });
    use.store.setName({ owner: null, name: "bare", tag: "latest" }, bare.id);
    const tree = await use.addTree({ file: "content" });
    const build = await use.start([], {
      recipe: recipe(
        [
          { kind: "user", name: "ada", create: true },
          { kind: "workdir", path: "/app" },
          { kind: "copy", tree, to: "./", owner: "ada" },
        ],
        { base: { kind: "image", name: "bare" } },
      ),
    });
    const image = await build.image;
    expect((await logOf(build)).map(({ text }) => text)).toContain("the image has no shell to try");
    expect(image.layers).toHaveLength(4);
  });

  it("stands on a snapshot's own files, which lie above its image's", async () => {
    const disk = await use.addLayer((directory) => writeFileSync(join(directory, "mine"), "of the snapshot"));
    const snapshot = await use.addImage({ kind: "snapshot", layers: use.tiny.layers, disk });
    use.store.setName({ owner: null, name: "snapshot", tag: "latest" }, snapshot.id);
    const image = await use.build([], {
      recipe: recipe([run("cp /mine /copy")], { base: { kind: "image", name: "snapshot" } }),
    });
    // On a copy of them, which has inode numbers to stand on.
    expect(image.layers.slice(2)).toEqual(use.tiny.layers);
    expect(image.layers).not.toContain(disk);
    expect((await use.inside(image, "cat /copy")).stdout).toBe("of the snapshot");
  });

  it("that writes nothing adds no layer", async () => {
    const image = await use.build([run("true"), run("echo x >/file"), run("true")]);
    expect(image.layers).toHaveLength(2);
    const build = await use.start([
      run("true"),
      run("echo x >/file"),
      run("true"),
      { kind: "env", variables: { A: "b" } },
    ]);
    expect((await build.image).layers).toEqual(image.layers);
    expect(build.info().steps.map(({ state }) => state)).toEqual([
      "done",
      "cached",
      "cached",
      "cached",
      "done",
      "done",
    ]);
  });
});
