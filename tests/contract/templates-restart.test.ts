/** What becomes of templates when the server goes in the middle, and of files that do not arrive whole. */
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { E2B } from "e2b";
import { describe, expect, test } from "vitest";
import { TEMPLATE_DEFAULTS } from "../helpers/needs-host.js";
import { useServer } from "../helpers/use-server.js";
import { BASH_IMAGE, useBashImage } from "./bash-image.js";
import { failure } from "./cell.js";

const server = useServer({ env: useBashImage() });
const clientOf = () => new E2B({ apiKey: server.apiKey, apiUrl: server.url, sandboxUrl: server.url });

const PATIENCE = { timeout: 30_000, interval: 50 };

/** Whole files, and those on their way. */
function storedFiles(): string[] {
  const images = join(server.stateDirectory, "images");
  return ["blobs/sha256", "tmp", "scratch"].flatMap((name) => {
    const directory = join(images, name);
    return existsSync(directory) ? readdirSync(directory).map((file) => `${name}/${file}`) : [];
  });
}

describe("after a restart of the server", () => {
  test("a template is there, with its build's log", async () => {
    const { Template, Sandbox } = clientOf();
    const template = Template().fromImage(BASH_IMAGE).runCmd("echo told-before; echo kept > kept.txt");
    const info = await Template.build(template, "lasting", TEMPLATE_DEFAULTS);
    const before = await Template.getBuildStatus(info);
    await server.restart();
    const after = await Template.getBuildStatus(info);
    expect(after).toEqual(before);
    expect(after.status).toBe("ready");
    expect(after.logEntries.map(({ message }) => message)).toContain("told-before");
    const sandbox = await Sandbox.create("lasting");
    expect(await sandbox.files.read("kept.txt")).toBe("kept\n");
    await sandbox.kill();
  }, 60_000);

  test("a build that a killed server was at has failed and says so, and can be done again", async () => {
    const { Template, Sandbox } = clientOf();
    const make = (seconds: number) =>
      Template().fromImage(BASH_IMAGE).runCmd("echo first-step").runCmd(`echo in-the-middle; sleep ${seconds}`);
    const info = await Template.buildInBackground(make(600), "cut");
    const texts = async () => (await Template.getBuildStatus(info)).logEntries.map(({ message }) => message);
    await expect.poll(texts, PATIENCE).toContain("in-the-middle");
    await server.kill("SIGKILL");
    await server.restart();
    const status = await Template.getBuildStatus(info);
    expect(status.status).toBe("error");
    expect(status.reason?.message).toMatch(/^the process that ran this build is gone/);
    expect(status.reason?.step).toBe("2");
    expect(status.logEntries.map(({ message }) => message)).toContain("in-the-middle");
    expect((await failure(Sandbox.create("cut"))).message).toMatch(/^404: .*No build of it is ready yet/);
    await Template.build(make(0), "cut", TEMPLATE_DEFAULTS);
    const sandbox = await Sandbox.create("cut");
    await sandbox.kill();
  }, 60_000);
});

describe("files that are sent", () => {
  test("leave nothing if they do not arrive whole", async () => {
    const { body: promised } = await server.call<{ templateID: string }>("POST", "/v3/templates", { name: "halves" });
    const path = `/templates/${promised.templateID}/files/${randomBytes(32).toString("hex")}`;
    const { body: link } = await server.call<{ url: string; present: boolean }>("GET", path);
    const before = storedFiles();
    const { pathname, search, port, host } = new URL(link.url);
    const socket = connect(Number(port), "127.0.0.1");
    socket.write(`PUT ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 10000000\r\n\r\n`);
    socket.write(randomBytes(5_000_000));
    await expect.poll(() => storedFiles().length, PATIENCE).toBeGreaterThan(before.length);
    socket.destroy();
    await expect.poll(storedFiles, PATIENCE).toEqual(before);
    expect((await server.call<{ present: boolean }>("GET", path)).body.present).toBe(false);
    const whole = await fetch(link.url, { method: "PUT", body: randomBytes(1000) });
    expect(whole.status).toBe(200);
    expect((await server.call<{ present: boolean }>("GET", path)).body.present).toBe(true);
  }, 60_000);

  test("are refused at once if they are announced to be too large", async () => {
    const { body: promised } = await server.call<{ templateID: string }>("POST", "/v3/templates", { name: "large" });
    const path = `/templates/${promised.templateID}/files/${randomBytes(32).toString("hex")}`;
    const { body: link } = await server.call<{ url: string }>("GET", path);
    const { pathname, search, port, host } = new URL(link.url);
    const socket = connect(Number(port), "127.0.0.1");
    let answer = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      answer += text;
    });
    socket.write(`PUT ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${11 * 1024 ** 3}\r\n\r\n`);
    await expect.poll(() => answer, PATIENCE).toMatch(/^HTTP\/1\.1 413 /);
    socket.destroy();
  });
});
