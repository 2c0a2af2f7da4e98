/** Debian's docker-registry on a port of this machine, and a proxy before it that cuts, refuses and counts. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomUUID, sign, X509Certificate } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { onTestFinished } from "vitest";
import { temporaryDirectory } from "./use-images.js";

const START_MS = 10_000;

export interface RunningRegistry {
  readonly port: number;
  /** `localhost:5000`. */
  readonly host: string;
  /** Of its files: `docker/registry/v2/…`. */
  readonly storage: string;
  readonly child: ChildProcess;
  stop(): Promise<void>;
}

export interface RegistryOptions {
  readonly users?: Readonly<Record<string, string>>;
  /** The realm of tokens, and the certificate they are signed with. */
  readonly tokens?: { readonly realm: string; readonly service: string; readonly certificate: string };
  readonly tls?: { readonly certificate: string; readonly key: string };
  readonly storage?: string;
  readonly port?: number;
}

export async function startRegistry(options: RegistryOptions = {}): Promise<RunningRegistry> {
  const directory = temporaryDirectory();
  const storage = options.storage ?? join(directory, "storage");
  const port = options.port ?? (await freePort());
  const config = {
    version: "0.1",
    log: { level: "error", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: storage }, delete: { enabled: true } },
    http: {
      addr: `127.0.0.1:${port}`,
      secret: "for tests",
      ...(options.tls === undefined ? {} : { tls: options.tls }),
    },
    ...authConfig(directory, options),
  };
  const path = join(directory, "config.yml");
  // JSON is YAML.
  writeFileSync(path, JSON.stringify(config));
  const child = spawn("docker-registry", ["serve", path], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-4000);
  });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    await exited;
  };
  onTestFinished(stop);
  const deadline = Date.now() + START_MS;
  while (!(await answers(port))) {
    if (Date.now() > deadline || child.exitCode !== null) throw new Error(`docker-registry does not start: ${said}`);
    await sleep(20);
  }
  return { port, host: `localhost:${port}`, storage, child, stop };
}

function authConfig(directory: string, options: RegistryOptions): Record<string, unknown> {
  if (options.users !== undefined) {
    const path = join(directory, "htpasswd");
    const lines = Object.entries(options.users).map(([name, password]) => `${name}:${bcrypt(password)}\n`);
    writeFileSync(path, lines.join(""));
    return { auth: { htpasswd: { realm: "test", path } } };
  }
  if (options.tokens !== undefined) {
    const { realm, service, certificate } = options.tokens;
    return { auth: { token: { realm, service, issuer: "test", rootcertbundle: certificate } } };
  }
  return {};
}

/** By the C library: nothing else on a plain Debian does it. */
function bcrypt(password: string): string {
  const script = "print crypt($ARGV[0], q($2b$05$abcdefghijklmnopqrstuu))";
  return execFileSync("perl", ["-e", script, password], { encoding: "utf8" });
}

export interface Certificate {
  readonly certificate: string;
  readonly key: string;
}

/** For localhost, signed by itself. */
export function makeCertificate(): Certificate {
  const directory = temporaryDirectory();
  const certificate = join(directory, "certificate.pem");
  const key = join(directory, "key.pem");
  execFileSync(
    "openssl",
    // prettier-ignore
    [
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-days",
      "2",
      "-keyout",
      key,
      "-out",
      certificate,
      "-subj",
      "/CN=localhost",
      "-addext",
      "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ],
    { stdio: "ignore" },
  );
  return { certificate, key };
}

/** A token as docker-registry wants it. */
export function signToken(
  { certificate, key }: Certificate,
  claims: { readonly service: string; readonly scopes: readonly string[]; readonly lifetimeS?: number },
): string {
  const now = Math.floor(Date.now() / 1000);
  const access = claims.scopes.map((scope) => {
    const [type, name, actions = ""] = scope.split(":");
    return { type, name, actions: actions.split(",") };
  });
  const der = new X509Certificate(readFileSync(certificate)).raw.toString("base64");
  const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const payload = `${encode({ typ: "JWT", alg: "ES256", x5c: [der] })}.${encode({
    iss: "test",
    sub: "somebody",
    aud: claims.service,
    exp: now + (claims.lifetimeS ?? 300),
    nbf: now - 10,
    iat: now,
    jti: randomUUID(),
    access,
  })}`;
  const signature = sign("sha256", Buffer.from(payload), { key: readFileSync(key), dsaEncoding: "ieee-p1363" });
  return `${payload}.${signature.toString("base64url")}`;
}

export interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  /** Of bodies, as they went through. */
  sentBytes: number;
  receivedBytes: number;
  status: number;
}

/** What the proxy does instead of passing a request on as it is. */
export type Interference =
  | {
      readonly kind: "answer";
      readonly status: number;
      readonly headers?: Record<string, string>;
      readonly body?: string;
    }
  /** The connection breaks after so many bytes of the answer. */
  | { readonly kind: "cut-answer"; readonly afterBytes: number }
  /** No more comes after so many bytes of the answer, for as long as somebody waits. */
  | { readonly kind: "stall-answer"; readonly afterBytes: number }
  /** No more than so many bytes of the request are taken, for as long as somebody waits. */
  | { readonly kind: "stall-request"; readonly afterBytes: number }
  /** The connections on both sides break after so many bytes of the request. */
  | { readonly kind: "cut-request"; readonly afterBytes: number };

export interface RegistryProxy {
  readonly host: string;
  readonly port: number;
  readonly exchanges: Exchange[];
  /** Asked for every request; undefined lets it through. */
  interfere: (exchange: Exchange) => Interference | undefined;
  close(): Promise<void>;
}

export async function startProxy(target: { readonly port: number }): Promise<RegistryProxy> {
  const proxy: { interfere: RegistryProxy["interfere"] } & { exchanges: Exchange[] } = {
    exchanges: [],
    interfere: () => undefined,
  };
  const { port, close } = await serve((incoming, outgoing) => {
    const exchange: Exchange = {
      method: incoming.method ?? "",
      path: incoming.url ?? "",
      headers: incoming.headers,
      sentBytes: 0,
      receivedBytes: 0,
      status: 0,
    };
    proxy.exchanges.push(exchange);
    const wanted = proxy.interfere(exchange);
    if (wanted?.kind === "answer") {
      exchange.status = wanted.status;
      incoming.resume();
      outgoing.writeHead(wanted.status, { connection: "close", ...wanted.headers }).end(wanted.body);
      return;
    }
    const forward = request(
      // The host is the proxy's, so that the registry's own addresses lead through it.
      { host: "127.0.0.1", port: target.port, method: exchange.method, path: exchange.path, headers: incoming.headers },
      (answer) => {
        exchange.status = answer.statusCode ?? 0;
        outgoing.writeHead(exchange.status, answer.headers);
        answer.on("data", (chunk: Buffer) => {
          const limit =
            wanted?.kind === "cut-answer" || wanted?.kind === "stall-answer" ? wanted.afterBytes : undefined;
          exchange.receivedBytes += chunk.length;
          if (limit === undefined || exchange.receivedBytes < limit) {
            if (!outgoing.write(chunk)) answer.pause();
            return;
          }
          const rest = limit - (exchange.receivedBytes - chunk.length);
          exchange.receivedBytes = limit;
          answer.destroy();
          outgoing.write(chunk.subarray(0, rest), () => {
            if (wanted?.kind === "cut-answer") outgoing.socket?.destroy();
          });
        });
        outgoing.on("drain", () => answer.resume());
        answer.on("end", () => outgoing.end());
      },
    );
    forward.on("error", () => outgoing.socket?.destroy());
    outgoing.on("close", () => forward.destroy());
    incoming.on("data", (chunk: Buffer) => {
      exchange.sentBytes += chunk.length;
      if (wanted?.kind === "stall-request" && exchange.sentBytes >= wanted.afterBytes) return void incoming.pause();
      if (wanted?.kind === "cut-request" && exchange.sentBytes >= wanted.afterBytes) {
        const rest = chunk.subarray(0, chunk.length - (exchange.sentBytes - wanted.afterBytes));
        exchange.sentBytes = wanted.afterBytes;
        incoming.pause();
        forward.write(rest, () => {
          forward.socket?.destroy();
          incoming.socket.destroy();
        });
        return;
      }
      if (!forward.write(chunk)) {
        incoming.pause();
        forward.once("drain", () => incoming.resume());
      }
    });
    incoming.on("end", () => forward.end());
  });
  return Object.assign(proxy, { host: `localhost:${port}`, port, close });
}

/** An HTTP server of the test's own, gone with it. */
export async function serve(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ readonly server: Server; readonly port: number; readonly host: string; close(): Promise<void> }> {
  const server = createServer({ keepAliveTimeout: 1000 }, handler);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  onTestFinished(close);
  return { server, port, host: `localhost:${port}`, close };
}

async function freePort(): Promise<number> {
  const server = createTcpServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    // Whatever it says, in plain HTTP or TLS: something listens.
    const probe = request({ host: "127.0.0.1", port, path: "/v2/", agent: false }, (answer) => {
      answer.resume();
      resolve(true);
    });
    probe.on("error", (error: NodeJS.ErrnoException) => resolve(error.code !== "ECONNREFUSED"));
    probe.end();
  });
}
