/** The same work, a sandbox and a command in it, asked for in four ways: of the engine, and of the server by three clients. */
import type { BubblewrapEngine, CommandSpec, Sandbox as EngineSandbox } from "@holdfast/engine";
import { resolveSandboxLimits } from "@holdfast/protocol";
import { Holdfast } from "@holdfast/sdk";
import { Sandbox as E2bSandbox } from "e2b";
import { countBytes, envelope, exchange, sandboxHeaders, text } from "./raw-http.js";
import { expectSuccess } from "./sandboxes.js";
import type { ServerProcess } from "./server-process.js";

const LINE = "echo hello";
/** What SDKs make of a line. */
const ARGV = ["/bin/bash", "-l", "-c", LINE];
const COMMAND_MS = 60_000;
const SANDBOX_MS = 3_600_000;
const MIB = 1024 * 1024;

export interface ClientSandbox {
  readonly id: string;
  /** Runs the line to its end; `onOutput` is called when the first byte of output is there. */
  run(onOutput?: () => void): Promise<void>;
  /** Reads so many bytes of a command's output. */
  readOutput(bytes: number): Promise<void>;
  kill(): Promise<void>;
}

export interface Client {
  readonly name: string;
  create(): Promise<ClientSandbox>;
}

const zeroes = (bytes: number): string[] => ["/usr/bin/head", "-c", String(bytes), "/dev/zero"];

function expectBytes(seen: number, bytes: number): void {
  if (seen !== bytes) throw new Error(`${seen} of ${bytes} bytes of output arrived`);
}

/** Counts the characters of output that is all zeroes, and so one byte each. */
class Counter {
  count = 0;
  readonly add = (text: string): void => {
    this.count += text.length;
  };
}

export const connectionTo = (server: ServerProcess) => ({
  apiUrl: server.url,
  sandboxUrl: server.url,
  apiKey: server.apiKey,
});

function expectHello(output: string): void {
  if (output.trim() !== "hello") throw new Error(`the measured command said ${JSON.stringify(output)}`);
}

/** The published package, with the sandbox named in a header. */
export function e2bClient(server: ServerProcess, name = "e2b SDK"): Client {
  const connection = connectionTo(server);
  return {
    name,
    async create() {
      const sandbox = await E2bSandbox.create({ ...connection, timeoutMs: SANDBOX_MS });
      return {
        id: sandbox.sandboxId,
        async run(onOutput) {
          const { stdout } = await sandbox.commands.run(LINE, onOutput === undefined ? {} : { onStdout: onOutput });
          expectHello(stdout);
        },
        async readOutput(bytes) {
          const seen = new Counter();
          await sandbox.commands.run(zeroes(bytes).join(" "), { onStdout: seen.add });
          expectBytes(seen.count, bytes);
        },
        async kill() {
          await sandbox.kill();
        },
      };
    },
  };
}

export function ownClient(server: ServerProcess): Client {
  const holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
  return {
    name: "our SDK",
    async create() {
      const sandbox = await holdfast.sandboxes.create({ timeoutMs: SANDBOX_MS });
      return {
        id: sandbox.id,
        async run(onOutput) {
          const { stdout } = await sandbox.run(LINE, onOutput === undefined ? {} : { onStdout: onOutput });
          expectHello(stdout);
        },
        async readOutput(bytes) {
          const seen = new Counter();
          await sandbox.run(zeroes(bytes), { onStdout: seen.add });
          expectBytes(seen.count, bytes);
        },
        async kill() {
          await sandbox.kill();
        },
      };
    },
  };
}

const apiHeaders = ({ apiKey }: ServerProcess) => ({ "x-api-key": apiKey, "content-type": "application/json" });

export async function rawCreate(server: ServerProcess): Promise<{ readonly id: string; readonly token: string }> {
  const url = `${server.url}/v2/sandboxes`;
  const body = JSON.stringify({ templateID: "base", timeout: SANDBOX_MS / 1000, secure: true });
  const made = await exchange({ url, method: "POST", headers: apiHeaders(server), body });
  const { sandboxID: id, envdAccessToken: token } = JSON.parse(await text(made)) as Record<string, string>;
  if (id === undefined || token === undefined) throw new Error("a create was answered without an id or a token");
  return { id, token };
}

export async function rawKill(server: ServerProcess, id: string): Promise<void> {
  await text(await exchange({ url: `${server.url}/sandboxes/${id}`, method: "DELETE", headers: apiHeaders(server) }));
}

/** The requests that E2B's SDK makes, without the SDK. */
export function rawClient(server: ServerProcess): Client {
  const { url } = server;
  return {
    name: "raw HTTP",
    async create() {
      const { id, token } = await rawCreate(server);
      const headers = {
        ...sandboxHeaders(id, token),
        "content-type": "application/connect+json",
        "connect-protocol-version": "1",
        "connect-timeout-ms": String(COMMAND_MS),
      };
      const start = ([cmd, ...args]: readonly string[]) => ({
        url: `${url}/process.Process/Start`,
        method: "POST",
        headers,
        body: envelope({ process: { cmd, args, envs: {} }, stdin: false }),
      });
      return {
        id,
        async run(onOutput) {
          const answer = await exchange(start(ARGV));
          let said = "";
          for await (const chunk of answer) {
            said += (chunk as Buffer).toString("latin1");
            if (said.includes('"stdout"')) onOutput?.();
          }
          // The output itself is in base64.
          if (!said.includes('"exited":true') || !said.includes(Buffer.from("hello\n").toString("base64"))) {
            throw new Error(`the measured command was answered with ${said}`);
          }
        },
        async readOutput(bytes) {
          const onWire = await countBytes(await exchange(start(zeroes(bytes))));
          // In base64, with a frame around each piece.
          if (onWire < (bytes * 4) / 3) throw new Error(`${onWire} bytes on the wire are too few for ${bytes}`);
        },
        kill: () => rawKill(server, id),
      };
    },
  };
}

/** As the server asks the engine, so that what is left is the server. */
export function engineClient(engine: BubblewrapEngine): Client {
  const limits = resolveSandboxLimits({ memoryBytes: 512 * MIB, cpuMillis: 2000, pids: 512, diskBytes: 4096 * MIB });
  return {
    name: "engine",
    async create() {
      const sandbox = await engine.create({
        limits,
        hostname: "sandbox",
        defaultUser: "user",
        whenOwnerDies: "keep",
      });
      return {
        id: sandbox.id,
        run: (onOutput) => runOnEngine(sandbox, onOutput),
        async readOutput(bytes) {
          const command = await sandbox.start({ ...ENGINE_COMMAND, argv: zeroes(bytes) });
          let seen = 0;
          for await (const event of command.output()) if (event.kind === "data") seen += event.bytes.length;
          await expectSuccess(command.ended);
          expectBytes(seen, bytes);
        },
        async kill() {
          await sandbox.kill("the benchmark");
        },
      };
    },
  };
}

const ENGINE_COMMAND: CommandSpec = {
  argv: ARGV,
  stdin: "closed",
  limits: { wallMs: COMMAND_MS },
  graceMs: 0,
  whenReaderIsSlow: "block",
  spillBytes: 32 * MIB,
};

async function runOnEngine(sandbox: EngineSandbox, onOutput?: () => void): Promise<void> {
  const command = await sandbox.start(ENGINE_COMMAND);
  let said = "";
  for await (const event of command.output()) {
    if (event.kind !== "data") continue;
    onOutput?.();
    said += event.bytes.toString();
  }
  await expectSuccess(command.ended);
  expectHello(said);
}
