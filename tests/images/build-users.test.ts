/** Whom steps, start commands and sandboxes of an image run as, in every form that an image may name them. */
import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { planSandbox } from "@holdfast/images";
import type { RecipeStep } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { tinyRootfs } from "../helpers/use-images.js";
import { outputOf, recipe, run, useBuilds } from "./build-helper.js";

const ADD_STAFF: RecipeStep = { kind: "run", command: "echo staff:x:50: >>/etc/group", user: "root" };
const ID = run("echo $(id -u):$(id -g) >>/tmp/ids; echo $(id -u):$(id -g)");

describe("a build's user", () => {
  const use = useBuilds();

  it.each([
    ["user", "1000:1000", "user"],
    ["1000", "1000:1000", "1000"],
    ["1234", "1234:1234", "1234"],
    ["1000:50", "1000:50", "1000:50"],
    ["user:staff", "1000:50", "1000:50"],
    ["user:50", "1000:50", "1000:50"],
    ["1000:staff", "1000:50", "1000:50"],
    ["root", "0:0", "root"],
    ["root:staff", "0:50", "0:50"],
  ])("%s is %s in steps, in the start command and in sandboxes", async (name, ids, recorded) => {
    const start = {
      command: "echo $(id -u):$(id -g) >/tmp/start; sleep 1000",
      readyWhen: { kind: "command", command: `grep -x ${ids} /tmp/start` },
    } as const;
    const steps: RecipeStep[] = [ADD_STAFF, { kind: "user", name }, ID, { kind: "workdir", path: "/made" }];
    const build = await use.start([], { recipe: recipe(steps, { start }) });
    const image = await build.image;
    expect(await outputOf(build)).toEqual([ids]);
    expect(image.config.user).toBe(recorded);
    expect((await use.inside(image, "echo $(id -u):$(id -g); stat -c %u:%g /made")).stdout).toBe(`${ids}\n${ids}\n`);
  });

  it.each([
    ["nosuch", "'nosuch'"],
    ["user:nosuch", 'no group "nosuch"'],
    ["nosuch:staff", 'no user "nosuch"'],
  ])("%s, whom the image does not know, is nobody and not root", async (name, said) => {
    const user: RecipeStep = { kind: "user", name };
    const build = await use.start([ADD_STAFF, user]);
    await expect(build.image).rejects.toMatchObject({
      code: "build_failed",
      message: expect.stringContaining(said),
      details: { step: "finalize" },
    });
    const inStep = await use.start([ADD_STAFF, user, ID]);
    await expect(inStep.image).rejects.toMatchObject({
      message: expect.stringMatching(/^step 3 \(RUN .*\) failed: the image has no (user|group) "nosuch"$/),
      details: { step: "3" },
    });
  });

  it("is root on the base until a step says otherwise, and the base's own in what is made of it", async () => {
    const config = { ...use.tiny.config, user: "user", workdir: "/home/user" };
    const base = await use.addTinyImage({ kind: "base", config });
    use.store.setName({ owner: null, name: "on", tag: "latest" }, base.id);
    const on = { kind: "image", name: "on" } as const;
    const build = await use.start([], { recipe: recipe([ID, { kind: "workdir", path: "/made" }], { base: on }) });
    const image = await build.image;
    expect(await outputOf(build)).toEqual(["0:0"]);
    expect(image.config.user).toBe("user");
    expect((await use.inside(image, "id -un; stat -c %U /made")).stdout).toBe("user\nroot\n");

    // A stage goes on as the one before it; whoever is named stays named.
    const stages = { base: { kind: "stage", index: 0 }, stages: [{ base: on, steps: [ID] }] } as const;
    const staged = await use.start([], { recipe: recipe([run("id -un")], stages) });
    expect((await staged.image).config.user).toBe("user");
    expect(await outputOf(staged)).toEqual(["root"]);
    const named = await use.start([], {
      recipe: recipe([ID, { kind: "user", name: "root" }, run("id -un")], { base: on }),
    });
    expect((await named.image).config.user).toBe("root");

    // Another host's, as it comes out of an archive; its mark does not go on to what is made of it.
    const labels = { "dev.holdfast.base": "1", other: "kept" };
    const moved = await use.addTinyImage({ kind: "imported", config: { ...config, labels } });
    use.store.setName({ owner: null, name: "moved", tag: "latest" }, moved.id);
    const onMoved = await use.start([], { recipe: recipe([ID], { base: { kind: "image", name: "moved" } }) });
    expect((await onMoved.image).config).toMatchObject({ user: "user", labels: { other: "kept" } });
    expect((await onMoved.image).config.labels).not.toHaveProperty("dev.holdfast.base");
    expect(await outputOf(onMoved)).toEqual(["0:0"]);

    // What was made of it is an image like any other.
    use.store.setName({ owner: null, name: "app", tag: "latest" }, image.id);
    const next = await use.start([], { recipe: recipe([run("id -un")], { base: { kind: "image", name: "app" } }) });
    await next.image;
    expect(await outputOf(next)).toEqual(["user"]);
  });

  it("of an image that was made elsewhere is that user, and never root", async () => {
    const image = await use.addTinyImage({ config: { ...use.tiny.config, user: "user:nosuch" } });
    const { spec } = planSandbox(image);
    expect(spec.defaultUser).toBe("user");
    expect((await use.inside(image, "id -u")).stdout).toBe("1000\n");
    expect(
      planSandbox({ ...image, config: { ...image.config, user: null } }, { fallbackUser: "1:2" }).spec.defaultUser,
    ).toBe("1:2");
  });

  it("is root in an image that has no list of users", async () => {
    const layer = await use.addLayer((directory) => {
      tinyRootfs(directory);
      rmSync(join(directory, "etc"), { recursive: true });
      mkdirSync(join(directory, "etc"));
      chmodSync(join(directory, "etc"), 0o755);
    });
    const bare = await use.addImage({ layers: [layer] });
    use.store.setName({ owner: null, name: "bare", tag: "latest" }, bare.id);
    const steps: RecipeStep[] = [
      { kind: "user", name: "root" },
      run("echo $(id -u):$(id -g)"),
      { kind: "workdir", path: "/work" },
      { kind: "user", name: "7:8" },
      run("echo $(id -u):$(id -g)"),
      { kind: "user", name: "root" },
    ];
    const build = await use.start([], { recipe: recipe(steps, { base: { kind: "image", name: "bare" } }) });
    const image = await build.image;
    expect(await outputOf(build)).toEqual(["0:0", "7:8"]);
    expect((await use.inside(image, "id -u; pwd")).stdout).toBe("0\n/work\n");
  });
});
