// The sudo client and the guest's side of it. The socket's name is fixed, so this file has the host's to itself.
import assert from "node:assert/strict";
import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { binary, FRAME, Guest, NOTE, run, sh, sleep, start } from "./guest-client.mjs";

let guest;
let host;
let directory;
let sudo;
const skip = process.getuid() !== 0 && "needs root";
const asNobody = { USER: "nobody", CWD: "/" };

before(async () => {
  guest = await Guest.start();
  host = await guest.connect();
  directory = mkdtempSync(path.join(os.tmpdir(), "holdfast-sudo-"));
  chmodSync(directory, 0o755);
  sudo = path.join(directory, "sudo");
  copyFileSync(binary, sudo);
  chmodSync(sudo, 0o755);
});
after(async () => {
  await guest.stop();
  rmSync(directory, { recursive: true });
});

const exit = (stream) => stream.note(NOTE.EXITED);

test("sudo runs a program as root, with the caller's descriptors and directory", { skip }, async () => {
  const stream = await run(host, sh(`cd /usr && ${sudo} sh -c 'id -u; pwd; echo err >&2; cat' `), {
    ...asNobody,
    STDIN: 0,
  });
  assert.equal(stream.text(), "0\n/usr\n");
  assert.equal(stream.text(2), "err\n");
});

test("sudo passes stdin through", { skip }, async () => {
  const stream = await run(host, sh(`echo from stdin | ${sudo} cat`), asNobody);
  assert.equal(stream.text(), "from stdin\n");
});

test("sudo ends as its program did", { skip }, async () => {
  assert.equal(exit(await run(host, sh(`exec ${sudo} sh -c 'exit 42'`), asNobody)).EXIT_CODE, 42);
  const killed = exit(await run(host, sh(`exec ${sudo} sh -c 'kill -TERM $$'`), asNobody));
  assert.deepEqual([killed.EXIT_KIND, killed.SIGNAL], [1, 15]);
});

test("sudo resets the environment, says who called, and keeps all with -E", { skip }, async () => {
  const values = { ...asNobody, ENV: ["MINE=1", "LANG=C.UTF-8", "PATH=/tmp:/usr/bin:/bin"] };
  const plain = (await run(host, sh(`${sudo} -n X=y env`), values)).text();
  assert.match(plain, /^SUDO_USER=nobody$/m);
  assert.match(plain, /^SUDO_UID=65534$/m);
  assert.match(plain, /^HOME=\/root$/m);
  assert.match(plain, /^LANG=C.UTF-8$/m);
  assert.match(plain, /^X=y$/m);
  assert.match(plain, /^PATH=\/usr\/local\/sbin:/m);
  assert.doesNotMatch(plain, /MINE/);
  assert.match((await run(host, sh(`${sudo} -E env`), values)).text(), /^MINE=1$/m);
});

test("sudo -u runs as another user, -i in a login shell at home", { skip }, async () => {
  assert.equal((await run(host, sh(`${sudo} -u nobody id -un`), { CWD: "/" })).text(), "nobody\n");
  assert.equal((await run(host, sh(`${sudo} --user=root -- id -un`), asNobody)).text(), "root\n");
  assert.equal((await run(host, sh(`${sudo} -i pwd`), asNobody)).text(), "/root\n");
  assert.equal(
    (await run(host, sh(`${sudo} -s echo 'two  words' '$x;y'`), { ...asNobody, ENV: ["SHELL=/bin/sh"] })).text(),
    "two  words ;y\n",
  );
  assert.equal(exit(await run(host, sh(`exec ${sudo} -v`), asNobody)).EXIT_CODE, 0);
});

test("sudo says what it cannot run", { skip }, async () => {
  const missing = await run(host, sh(`exec ${sudo} no-such-program`), asNobody);
  assert.equal(exit(missing).EXIT_CODE, 1);
  assert.match(missing.text(2), /no-such-program.*No such file/);
  assert.match((await run(host, sh(`${sudo} -u no-such-user id`), asNobody)).text(2), /unknown user no-such-user/);
});

test("sudo forwards signals, and its death hangs the program up", { skip }, async () => {
  const stream = start(
    host,
    [
      sudo,
      "sh",
      "-c",
      "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.02; done",
    ],
    asNobody,
  );
  await stream.until((s) => s.text().includes("ready"));
  await host.request(FRAME.SIGNAL, { COMMAND_ID: stream.commandId, SIGNAL: 10 }).done();
  await stream.until((s) => s.text().includes("usr1"));
  await host.request(FRAME.SIGNAL, { COMMAND_ID: stream.commandId, SIGNAL: 15 }).done();
  await stream.done();
  assert.equal(exit(stream).EXIT_CODE, 3);

  const killed = start(
    host,
    [sudo, "sh", "-c", "trap 'echo hup; exit' HUP; echo ready; while :; do sleep 0.02; done"],
    asNobody,
  );
  await killed.until((s) => s.text().includes("ready"));
  await host.request(FRAME.SIGNAL, { COMMAND_ID: killed.commandId, SIGNAL: 9 }).done();
  await killed.done();
  assert.match(killed.text(), /hup/);
});

test("a flood of sudo leaves the guest in order", { skip }, async () => {
  const flood = await run(
    host,
    sh(`for i in $(seq 1 100); do ${sudo} sleep 0.3 2>/dev/null & done; wait; echo over`),
    asNobody,
  );
  assert.equal(flood.text(), "over\n");
  await sleep(100);
  assert.equal((await run(host, sh(`${sudo} id -u`), asNobody)).text(), "0\n");
});
