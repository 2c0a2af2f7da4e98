import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BuildInfo, LogEntry, TemplateClass } from "e2b";
import { expect, onTestFinished } from "vitest";
import { TEMPLATE_DEFAULTS } from "../../helpers/needs-host.js";
import { BASH_IMAGE } from "../bash-image.js";
import { type Case, type Cases, type Cell, failure, sha256 } from "../cell.js";

let names = 0;

/** Nobody else's, in no other cell. */
function freshName(cell: Cell): string {
  names += 1;
  return `t${cell.version.replace(".", "")}-${cell.way}-${names}`;
}

/** Files to copy in, which go with the test. */
function useContext(files: Readonly<Record<string, string | Uint8Array>>): string {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-context-"));
  chmodSync(directory, 0o755);
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(directory, path, ".."), { recursive: true });
    writeFileSync(join(directory, path), content);
  }
  return directory;
}

async function build(cell: Cell, template: TemplateClass, name = freshName(cell), options: object = {}) {
  const logs: LogEntry[] = [];
  const info = (await cell.client.Template.build(template, name, {
    onBuildLogs: (entry) => logs.push(entry),
    ...TEMPLATE_DEFAULTS,
    ...options,
  })) as BuildInfo & { tags?: string[] };
  return { info, name, logs, texts: logs.map(({ message }) => message) };
}

const output = async (cell: Cell, template: string, command: string): Promise<string> => {
  const made = await cell.client.Sandbox.create(template, { timeoutMs: 120_000 });
  onTestFinished(async () => {
    await made.kill();
  });
  return (await made.commands.run(command)).stdout;
};

const inCell = (run: (cell: Cell) => Promise<void>): Case => ({ run, timeoutMs: 120_000 });

export const templateCases: Cases = {
  "a template of an image, files and commands is what sandboxes are made from": inCell(async (cell) => {
    const single = `single ${Math.random()}`;
    const big = Buffer.alloc(3 * 1024 * 1024, "0123456789abcdef-");
    const fileContextPath = useContext({
      "folder/one.txt": "one",
      "folder/sub/two.txt": "two",
      "single.txt": single,
      "big.bin": big,
      "ignored.log": "no",
      ".dockerignore": "*.log\n",
    });
    symlinkSync("one.txt", join(fileContextPath, "folder/link"));
    const template = cell.client
      .Template({ fileContextPath })
      .fromImage(BASH_IMAGE)
      .setEnvs({ GREETING: "hello  'world' $(no) \\n", LONG_PATH: `/opt/bin:$PATH` })
      .copy("folder/*", "/app/", { user: "root", mode: 0o755 })
      .copy("single.txt", "renamed.txt")
      .copy("single.txt", "/srv/")
      .copy("big.bin", "/srv/big.bin", { gzip: false } as object)
      .copy(".", "/all")
      .setUser("builder")
      .setWorkdir("/work/place")
      .runCmd([
        'printf "%s\\n" "$GREETING" > out.txt',
        "whoami >> out.txt",
        "pwd >> out.txt",
        'echo "$FROM_IMAGE" >> out.txt',
      ])
      .runCmd("whoami > /root-was-here", { user: "root" })
      .makeSymlink("/work/place/out.txt", "/tmp/linked")
      .setEnvs({ LATER: "2" });
    const { name, texts } = await build(cell, template);
    const script = [
      "whoami; pwd; cat out.txt /root-was-here; echo $LATER $LONG_PATH",
      "cat /app/one.txt /app/sub/two.txt /app/link; readlink /app/link; stat -c '%a %U' /app/one.txt",
      "stat -c %U /home/user/renamed.txt /srv/single.txt; cat /home/user/renamed.txt /srv/single.txt",
      "sha256sum < /srv/big.bin; ls -A /all; id -u user",
    ].join("; ");
    expect((await output(cell, name, script)).split("\n")).toEqual([
      "builder",
      "/work/place",
      "hello  'world' $(no) \\n",
      "builder",
      "/work/place",
      "yes",
      "root",
      "2 /opt/bin:/usr/local/bin:/usr/bin:/bin",
      "onetwooneone.txt",
      "755 root",
      "user",
      "user",
      `${single}${single}${sha256(big)}  -`,
      ".dockerignore",
      "big.bin",
      "folder",
      "single.txt",
      "1000",
      "",
    ]);
    expect(texts).toContain("Uploaded 'single.txt'");
    expect((await build(cell, template, name)).texts).toContain("Skipping upload of 'single.txt', already cached");
  }),

  "its log is told line by line while it is built": inCell(async (cell) => {
    const template = cell.client
      .Template()
      .fromImage(BASH_IMAGE)
      .runCmd(`echo first-${Math.random()}; echo to-stderr >&2; for i in $(seq 250); do echo line-$i; done`);
    const { texts, logs } = await build(cell, template);
    const lines = texts.filter((text) => /^line-\d+$/.test(text));
    expect(lines).toEqual(Array.from({ length: 250 }, (_, index) => `line-${index + 1}`));
    expect(texts.filter((text) => text.startsWith("first-"))).toHaveLength(1);
    expect(logs.find(({ message }) => message === "to-stderr")?.level).toBe("warn");
    expect(logs.every(({ timestamp }) => !Number.isNaN(timestamp.getTime()))).toBe(true);
  }),

  "a step that fails fails the build, at the line that asked for it": inCell(async (cell) => {
    const template = cell.client.Template().fromImage(BASH_IMAGE).setEnvs({ A: "1" }).runCmd("true");
    template.runCmd("echo the-last-words; exit 7");
    template.runCmd("echo never");
    const logs: string[] = [];
    const error = await failure(
      cell.client.Template.build(template, freshName(cell), { onBuildLogs: ({ message }) => logs.push(message) }),
    );
    expect(error).toBeInstanceOf(cell.sdk.BuildError);
    expect(error.message).toMatch(/^step 3 \(.*exit 7.*\) failed: .*7/);
    expect(error.stack).toMatch(/cases\/templates\.ts:\d+/);
    expect(logs).toContain("the-last-words");
    expect(logs.join()).not.toContain("never\n");
    const where = new Error("here").stack?.match(/templates\.ts:(\d+)/)?.[1];
    const asked = error.stack?.match(/templates\.ts:(\d+)/)?.[1];
    // The second line of the template above.
    expect(Number(asked)).toBeLessThan(Number(where));
    expect(Number(where) - Number(asked)).toBeLessThan(25);
  }),

  "a user that there is not is told of in E2B's words": inCell(async (cell) => {
    const template = cell.client.Template().fromImage(BASH_IMAGE).runCmd("whoami", { user: "root123" });
    const error = await failure(cell.client.Template.build(template, freshName(cell)));
    expect(error).toBeInstanceOf(cell.sdk.BuildError);
    expect(error.message).toBe(
      "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'",
    );
  }),

  "an image that there is not fails the build at its base": inCell(async (cell) => {
    const name = freshName(cell);
    const template = cell.client.Template().fromImage("nowhere/nothing:1").runCmd("true");
    const error = await failure(cell.client.Template.build(template, name));
    expect(error).toBeInstanceOf(cell.sdk.BuildError);
    expect(error.message).toContain("nowhere/nothing:1");
    const made = await failure(cell.client.Sandbox.create(name));
    expect(made.message).toMatch(/^404: template '.*' not found\. No build of it is ready yet\./);
  }),

  "a build in the background is asked about": inCell(async (cell) => {
    const { Template } = cell.client;
    const template = Template().fromImage(BASH_IMAGE).runCmd(`echo ${Math.random()}; echo in-background`);
    const info = await Template.buildInBackground(template, freshName(cell));
    let offset = 0;
    const texts: string[] = [];
    let status = "";
    await expect
      .poll(
        async () => {
          const now = await Template.getBuildStatus(info, { logsOffset: offset });
          offset += now.logEntries.length;
          texts.push(...now.logEntries.map(({ message }) => message));
          status = now.status;
          return status === "ready" && now.logEntries.length === 0;
        },
        { timeout: 60_000, interval: 50 },
      )
      .toBe(true);
    expect(texts).toContain("in-background");
    expect(new Set(texts).size).toBe(texts.length);
    const missing = await failure(Template.getBuildStatus({ ...info, buildId: `b${"0".repeat(20)}` }));
    expect(missing).toBeInstanceOf(cell.sdk.BuildError);
    expect(missing.message).toContain("404");
  }),

  "what was built before is not built again, unless that is asked for": inCell(async (cell) => {
    const mark = String(Math.random());
    const make = () => cell.client.Template().fromImage(BASH_IMAGE).runCmd(`echo ${mark}; date > built-at`);
    const first = await build(cell, make());
    const again = await build(cell, make(), first.name);
    expect(again.info.templateId).toBe(first.info.templateId);
    expect(again.info.buildId).not.toBe(first.info.buildId);
    expect(first.texts).toContain(mark);
    expect(again.texts).not.toContain(mark);
    const forced = await build(cell, make(), first.name, { skipCache: true });
    expect(forced.texts).toContain(mark);
    const edited = await build(cell, make().runCmd("echo one-more"), first.name);
    expect(edited.texts).toContain("one-more");
    expect(edited.texts).not.toContain(mark);
    const skipped = cell.client
      .Template()
      .fromImage(BASH_IMAGE)
      .runCmd("echo before")
      .skipCache()
      .runCmd(`echo ${mark}`);
    await build(cell, skipped, first.name);
    expect((await build(cell, skipped, first.name)).texts).toContain(mark);
  }),

  "a start command runs in its sandboxes, which are ready when it is": inCell(async (cell) => {
    const template = cell.client
      .Template()
      .fromImage(BASH_IMAGE)
      .setStartCmd("sleep 0.5; echo up > /tmp/up; exec sleep 1000", cell.sdk.waitForFile("/tmp/up"));
    const { name } = await build(cell, template);
    expect(await output(cell, name, "cat /tmp/up; ps -o args | grep '[s]leep 10'")).toBe("up\nsleep 1000\n");
    const broken = cell.client.Template().fromImage(BASH_IMAGE).setStartCmd("exit 3", cell.sdk.waitForFile("/tmp/up"));
    const error = await failure(cell.client.Template.build(broken, freshName(cell), TEMPLATE_DEFAULTS));
    expect(error).toBeInstanceOf(cell.sdk.BuildError);
    expect(error.message).toContain("start command");
  }),

  "templates are built on templates, and on the base": inCell(async (cell) => {
    const below = cell.client.Template().fromBaseImage().setUser("root").setWorkdir("/below").setEnvs({ BELOW: "1" });
    const { name } = await build(cell, below);
    const above = await build(
      cell,
      cell.client.Template().fromTemplate(name).runCmd('echo "$BELOW $(whoami) $(pwd)" > /above'),
    );
    expect(await output(cell, above.name, "cat /above; whoami; pwd")).toBe("1 root /below\nroot\n/below\n");
    const unknown = cell.client.Template().fromTemplate("no-such-template");
    expect((await failure(cell.client.Template.build(unknown, freshName(cell)))).message).toContain("no-such-template");
  }),

  "its size is that of its sandboxes": inCell(async (cell) => {
    const template = cell.client.Template().fromImage(BASH_IMAGE).runCmd("true");
    const { info } = await build(cell, template, freshName(cell), { cpuCount: 1, memoryMB: 256 });
    const sandbox = await cell.client.Sandbox.create(info.templateId);
    onTestFinished(async () => {
      await sandbox.kill();
    });
    expect(await sandbox.getInfo()).toMatchObject({
      cpuCount: 1,
      memoryMB: 256,
      templateId: info.templateId,
      name: info.alias,
    });
    const listed = await cell.client.Sandbox.list({ query: { template: info.templateId } as object }).nextItems();
    expect(listed.map(({ sandboxId }) => sandboxId)).toEqual(
      cell.version === "2.45" ? expect.anything() : [sandbox.sandboxId],
    );
    const error = await failure(cell.client.Template.build(template, freshName(cell), { memoryMB: 64 * 1024 * 1024 }));
    expect(error.message).toMatch(/400.*memory/);
  }),

  "tags name what was built": inCell(async (cell) => {
    const { Template } = cell.client;
    const name = freshName(cell);
    const make = (text: string) => Template().fromImage(BASH_IMAGE).runCmd(`echo ${text} > version`);
    const one = await build(cell, make("one"), `${name}:v1`, { tags: ["stable"] });
    const two = await build(cell, make("two"), name);
    expect(one.info.tags).toEqual(["v1", "stable"]);
    expect(two.info.tags).toEqual(["default"]);
    expect(await Template.assignTags(`${name}:v1`, ["production", "stable"])).toEqual({
      buildId: one.info.buildId,
      tags: ["production", "stable"],
    });
    const tags = await Template.getTags(one.info.templateId);
    expect(Object.fromEntries(tags.map(({ tag, buildId }) => [tag, buildId]))).toEqual({
      default: two.info.buildId,
      production: one.info.buildId,
      stable: one.info.buildId,
      v1: one.info.buildId,
    });
    expect(await output(cell, `${name}:production`, "cat version")).toBe("one\n");
    expect(await output(cell, name, "cat version")).toBe("two\n");
    await Template.removeTags(name, ["production"]);
    expect((await Template.getTags(name)).map(({ tag }) => tag)).not.toContain("production");
    expect((await failure(cell.client.Sandbox.create(`${name}:production`))).message).toMatch(
      /^404: .*default, stable, v1/,
    );
    for (const wrong of [`${name}:`, `:v1`, `${name}:a b`, "bad/name"]) {
      const error = await failure(Template.build(make("x"), wrong));
      expect(error.message, wrong).toMatch(/^400: name: /);
    }
    expect((await failure(Template.assignTags(`${name}:v1`, "no good"))).message).toMatch(/^400: tags\[0\]/);
    expect((await failure(Template.assignTags("no-such:v1", "a"))).message).toMatch(/^404/);
    expect((await failure(Template.removeTags(name, "nothing"))).message).toMatch(/^404/);
  }),

  "a template exists from when it is asked for until it is deleted": inCell(async (cell) => {
    const { Template } = cell.client;
    const name = freshName(cell);
    expect(await Template.exists(name)).toBe(false);
    expect(await Template.aliasExists("base")).toBe(true);
    const { info } = await build(cell, Template().fromImage(BASH_IMAGE), name);
    expect(await Template.exists(name)).toBe(true);
    expect(await Template.exists(`${name}:default`)).toBe(true);
    expect(await Template.exists(`${name}:other`)).toBe(false);
    // The call by which snapshots are deleted, too.
    expect(await cell.client.Sandbox.deleteSnapshot(info.templateId)).toBe(true);
    expect(await cell.client.Sandbox.deleteSnapshot(info.templateId)).toBe(false);
    expect(await Template.exists(name)).toBe(false);
  }),

  "what cannot be honoured in a template is refused by name": inCell(async (cell) => {
    const { Template } = cell.client;
    const credentials = { accessKeyId: "me", secretAccessKey: "secret-word", region: "here" };
    const refused: [TemplateClass, RegExp][] = [
      [Template().fromAWSRegistry(BASH_IMAGE, credentials) as TemplateClass, /fromImageRegistry/],
      [Template().fromImage(BASH_IMAGE).setUser("no such user!") as TemplateClass, /steps\[0\]/],
    ];
    for (const [template, subject] of refused) {
      const error = await failure(Template.build(template, freshName(cell)));
      expect(error).toBeInstanceOf(cell.sdk.BuildError);
      expect(error.message).toMatch(subject);
      expect(error.message).not.toContain("secret-word");
    }
    expect((await failure(Template.build(Template().fromImage(BASH_IMAGE), "base"))).message).toMatch(/^403/);
  }),
};
