/** Images that sandboxes can run, made of next to nothing. */
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLayerId, type LayerId } from "@holdfast/engine";
import { createImageId, hostArchitecture, type ImageRecord, type Images, openImages } from "@holdfast/images";
import type { Bench } from "./harness.js";

const BUSYBOX = "/bin/busybox";

/** One for all figures of a run, over the bench's own engine. */
let shared: Promise<Images> | undefined;

export function sharedImages(bench: Bench): Promise<Images> {
  shared ??= openImages({ engine: bench.engine, stateDirectory: bench.stateDirectory }).then((images) => {
    bench.onEnd(() => images.close());
    return images;
  });
  return shared;
}

/** A root file system of 2 MB: busybox with its applets, and root. */
function fillWithBusybox(directory: string): void {
  if (!existsSync(BUSYBOX)) throw new Error(`${BUSYBOX} is not installed (Debian: busybox-static)`);
  for (const name of ["bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var"]) {
    mkdirSync(join(directory, name), { mode: 0o755 });
  }
  copyFileSync(BUSYBOX, join(directory, "bin/busybox"));
  for (const applet of execFileSync(BUSYBOX, ["--list"], { encoding: "utf8" }).split("\n")) {
    if (applet !== "" && applet !== "busybox") symlinkSync("busybox", join(directory, "bin", applet));
  }
  symlinkSync("../bin", join(directory, "usr/bin"));
  writeFileSync(join(directory, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
  writeFileSync(join(directory, "etc/group"), "root:x:0:\n");
}

async function addLayer(images: Images, fill: (directory: string) => void): Promise<LayerId> {
  const draft = await images.context.engine.layers.draft(createLayerId());
  try {
    fill(draft.directory);
    await draft.commit();
    return draft.id;
  } catch (error) {
    await draft.discard();
    throw error;
  }
}

/** Of so many layers: busybox, and a file in each of the others. It has the name as well, and goes with the run. */
export async function addTinyImage(images: Images, name: string, layerCount = 1): Promise<ImageRecord> {
  const layers = [await addLayer(images, fillWithBusybox)];
  for (let number = 1; number < layerCount; number++) {
    const fill = (directory: string): void => writeFileSync(join(directory, `file-${number}`), String(number));
    layers.unshift(await addLayer(images, fill));
  }
  const id = createImageId();
  const record: ImageRecord = {
    version: 1,
    id,
    kind: "imported",
    digest: `sha256:${Buffer.from(id).toString("hex").padEnd(64, "0")}`,
    owner: null,
    createdAt: new Date().toISOString(),
    layers,
    below: null,
    disk: null,
    config: {
      env: { PATH: "/bin" },
      workdir: null,
      user: null,
      entrypoint: null,
      cmd: ["/bin/sh"],
      exposedPorts: [],
      labels: {},
      start: null,
      architecture: hostArchitecture(),
      os: "linux",
    },
    floor: null,
    parent: null,
    fromSandbox: null,
    buildId: null,
    limits: {},
  };
  images.store.put(record);
  images.store.setName({ owner: null, name, tag: "latest" }, id);
  return record;
}
