/** What whoever starts the server reads: where it is, the key, and the lines to paste. */
import { printable } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { localTime } from "../text/times.js";

export interface ServerFacts {
  readonly url: string;
  /** As clients must name it, with the port if it is not the usual one. */
  readonly domain: string | null;
  /** The certificate to trust, if it is our own. */
  readonly caPath: string | null;
  /** The secret, only when this start made it. */
  readonly firstKey: string | null;
  readonly keys: readonly { readonly name: string; readonly hint: string; readonly createdAt: Date }[];
  readonly adopted: number;
}

const MAX_KEYS = 5;

const JAVASCRIPT = `import { Sandbox } from "e2b";
const sandbox = await Sandbox.create();
const { stdout } = await sandbox.commands.run("echo hello from $(uname -s)");
console.log(stdout);
await sandbox.kill();`;

const PYTHON = `from e2b import Sandbox
sandbox = Sandbox.create()
result = sandbox.commands.run("echo hello from $(uname -s)")
print(result.stdout)
sandbox.kill()`;

/** An address to listen on may be all of them, which is none to call. */
function callable(url: string): string {
  return url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:|$)/, "//127.0.0.1");
}

/** What both SDKs read from the environment. */
function clientEnvironment({ url, domain }: ServerFacts, secret: string): [name: string, value: string][] {
  const where: [string, string][] =
    domain !== null && url.startsWith("https:")
      ? [["E2B_DOMAIN", domain]]
      : [
          ["E2B_API_URL", callable(url)],
          ["E2B_SANDBOX_URL", callable(url)],
          // Without it a volume's content and its token would go to E2B.
          ["E2B_VOLUME_API_URL", callable(url)],
        ];
  return [...where, ["E2B_API_KEY", secret]];
}

function exports(variables: readonly (readonly [string, string])[]): string {
  return variables.map(([name, value]) => `export ${name}=${value}`).join("\n");
}

/** Our own certificate, for the two that know how to be told. */
function trustLines(caPath: string | null): string {
  if (caPath === null) return "";
  return `
export NODE_EXTRA_CA_CERTS=${caPath}   # for JavaScript
export SSL_CERT_FILE=${caPath}   # for Python
Only root can read that file where it is: copy it to where your program runs.`;
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, "  ");
}

function section(title: string, body: string, colours: Colours): string {
  return `${colours.bold(title)}\n${indent(body)}\n`;
}

function keySection(facts: ServerFacts, colours: Colours, holdfast: string): string {
  if (facts.firstKey !== null) {
    return section("API key", `${colours.green(facts.firstKey)}\nShown once and stored hashed: keep it.`, colours);
  }
  const rows = facts.keys.map(
    ({ name, hint, createdAt }) =>
      `${hint}  ${printable(name)}, made ${localTime(createdAt.toISOString()).slice(0, 10)}`,
  );
  const shown = rows.length > MAX_KEYS ? [...rows.slice(0, MAX_KEYS), `and ${rows.length - MAX_KEYS} more`] : rows;
  return section("API keys", `${shown.join("\n")}\n\`${holdfast} key create NAME\` makes another.`, colours);
}

export function welcomeText(facts: ServerFacts, colours: Colours, holdfast: string): string {
  const { url, domain, firstKey, adopted } = facts;
  const secret = firstKey ?? "e2b_…";
  const at = domain === null ? url : `${url} (and every name below ${domain})`;
  const lines = [
    `${colours.bold("Holdfast is ready at")} ${at}`,
    adopted === 0
      ? ""
      : `${adopted} ${adopted === 1 ? "sandbox was" : "sandboxes were"} taken over from an earlier run.`,
  ].filter((line) => line !== "");
  return [
    `${lines.join("\n")}\n`,
    keySection(facts, colours, holdfast),
    section(
      "Paste this where your program runs",
      exports(clientEnvironment(facts, secret)) + trustLines(facts.caPath),
      colours,
    ),
    section("JavaScript: npm i e2b; node hello.mjs", JAVASCRIPT, colours),
    section("Python: pip install e2b; python3 hello.py", PYTHON, colours),
    "Ctrl-C stops the server. Sandboxes run on, and the next start takes them over.\n",
  ].join("\n");
}
