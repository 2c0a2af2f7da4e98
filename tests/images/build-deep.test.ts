/** Recipes of more steps than a sandbox can stand on layers. */
import type { RecipeStep } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { patienceMs, scaled } from "../helpers/scale.js";
import { logOf, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

const STEPS = scaled(120, 110);
/** As many as are stacked; after that, each step's result takes the place of the last. */
const DEEPEST = 100;

/** Each adds a file, changes one, takes the place of a directory, and removes what the one before has added. */
function steps(count: number, last = "done"): RecipeStep[] {
  return [
    run("mkdir /kept /dir && rm /bin/nc && echo x >/dir/old"),
    ...Array.from({ length: count - 2 }, (_, index) =>
      run(
        `echo ${index} >/last; touch /kept/${index} /brief-${index}; rm -f /brief-${index - 1}; rm -r /dir; mkdir /dir; echo ${index} >/dir/new`,
      ),
    ),
    run(`echo ${last} >/end`),
  ];
}

const SHOW = "cat /last /end; ls /kept | wc -l; ls / | grep brief; ls /dir; cat /dir/new; ls /bin/nc 2>&1";
const shown = (end: string) =>
  `${STEPS - 3}\n${end}\n${STEPS - 2}\nbrief-${STEPS - 3}\nnew\n${STEPS - 3}\nls: /bin/nc: No such file or directory\n`;

describe.each(["btrfs", "dir"] as const)("a recipe of many steps, on a %s pool", (pool) => {
  const use = useBuilds({ pool });

  it("comes to an image of no more layers than a sandbox takes", { timeout: patienceMs(180_000) }, async () => {
    const image = await use.build(steps(STEPS));
    expect(image.layers).toHaveLength(DEEPEST);
    expect((await use.inside(image, SHOW)).stdout).toBe(shown("done"));

    const again = await use.start(steps(STEPS, "done otherwise"));
    const edited = await again.image;
    expect(again.info().steps.map(({ state }) => state)).toEqual([
      "done",
      ...Array.from({ length: STEPS - 1 }, () => "cached"),
      "done",
      "done",
    ]);
    expect(edited.layers.slice(1)).toEqual(image.layers.slice(1));
    expect((await use.inside(edited, SHOW)).stdout).toBe(shown("done otherwise"));

    // And on top of that.
    use.store.setName({ owner: null, name: "deep", tag: "latest" }, edited.id);
    const more = await use.start([], {
      recipe: recipe([run("rm /end /kept/0"), run("echo more >/more")], { base: { kind: "image", name: "deep" } }),
    });
    const upper = await more.image;
    expect(upper.layers).toHaveLength(DEEPEST);
    expect((await use.inside(upper, "cat /more; ls /kept | wc -l; ls /end 2>&1")).stdout).toBe(
      `more\n${STEPS - 3}\nls: /end: No such file or directory\n`,
    );
    expect((await use.inside(edited, SHOW)).stdout).toBe(shown("done otherwise"));
  });
});

describe("the disk of a build of many steps", () => {
  const use = useBuilds();

  it("counts what a step adds, and not what it begins with", { timeout: patienceMs(120_000) }, async () => {
    const fill = (name: string) => run(`dd if=/dev/urandom of=/${name} bs=1M count=12 2>/dev/null`);
    const many = Array.from({ length: DEEPEST - 2 }, (_, index) => run(`echo ${index} >/number`));
    const builder = { ...SMALL_BUILDER, diskMb: 44, timeoutS: 600 };
    const build = await use.start([...many, fill("a"), fill("b"), fill("c")], { builder });
    await build.image;
    expect((await logOf(build)).filter(({ text }) => /^done in .*, 1\d(\.\d)? MiB$/.test(text))).toHaveLength(3);
    const full = await use.start([...many, fill("a"), fill("b"), fill("c"), fill("d")], { builder });
    await expect(full.image).rejects.toMatchObject({ details: { cause: { kind: "out_of_disk" } } });
  });
});
