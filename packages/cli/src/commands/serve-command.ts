import { type Command, Option } from "commander";
import type { ServeFlags } from "../serve/serve-flags.js";
import { describe, poolOption, stateDirOption } from "./common-options.js";

/**
 * One option for each setting of the server, written down here so that no other command waits for the server to load. A
 * test compares them with the settings there are.
 */
function networkOptions(): Option[] {
  return [
    describe("--host <address>", "the address to listen on", "127.0.0.1"),
    describe("--port <number>", "the port to listen on; 0 takes any that is free", "3000"),
    describe(
      "--domain <name|none>",
      "under it every sandbox has its name, <port>-<id>.<domain>; its DNS must lead here",
      "none",
    ),
    new Option(
      "--tls [mode]",
      "HTTPS. self: with a certificate from a small CA of our own. files: with yours. Without a mode: files if a certificate is given, else self (default: off)",
    ).choices(["off", "self", "files"]),
    describe("--tls-certificate <file>", "the certificate and its chain, for <domain> and *.<domain>, PEM", "none"),
    describe("--tls-key <file>", "the certificate's private key, PEM", "none"),
    new Option(
      "--allow-plain-http",
      "listen on addresses other than this machine's own without TLS: keys and data cross the network readable",
    ),
  ];
}

function sandboxOptions(): Option[] {
  return [
    describe("--sandbox-memory-mb <number>", "memory of a sandbox that asks for none, in MiB", "512"),
    describe(
      "--sandbox-memory-start-mb <number>",
      "what it starts with of that, to grow as it needs it, in MiB",
      "128",
    ),
    describe("--sandbox-cpus <number>", "CPUs of a sandbox that asks for none", "2, or what there is"),
    describe("--sandbox-pids <number>", "processes of a sandbox that asks for none", "512"),
    describe("--sandbox-disk-mb <number>", "disk of a sandbox that asks for none, in MiB", "1024"),
    describe("--volume-mb <number>", "what a volume may hold, in MiB", "10240"),
    describe("--sandbox-output-kb <number>", "how much of each command's output stays readable, in KiB", "1024"),
    describe("--max-timeout-seconds <number>", "the longest time to live that can be given at once", "86400"),
    describe(
      "--templates <json>",
      'what sandboxes can be made from: {"python":{"rootfs":"/srv/python"},"app":{"image":"app:1"}}',
      "base alone",
    ),
  ];
}

function imageOptions(): Option[] {
  return [
    describe(
      "--image-aliases <json>",
      'names that images are built on, and what they stand for here: {"ubuntu:22.04":"base"}',
      "none",
    ),
    describe("--image-pull <true|false>", "look for a name that is not known here in its registry", "true"),
    describe("--debian-mirror <url>", "where the base image's packages come from", "http://deb.debian.org/debian"),
    describe(
      "--debian-security-mirror <url>",
      "where its security updates come from",
      "http://deb.debian.org/debian-security",
    ),
    describe("--scratch-directory <dir>", "where temporary files of builds and transfers go", "none"),
    describe("--build-parallel <number>", "images that are built at once; others wait", "2"),
    describe("--build-allow <json>", 'addresses that build steps may reach after all: ["10.1.2.3:3141"]', "none"),
    describe("--build-deny <json>", 'addresses that build steps must not reach: ["10.0.0.0/8"]', "none"),
  ];
}

function budgetOptions(): Option[] {
  return [
    describe(
      "--hold-seconds <number>",
      "how long a sandbox that is held at its memory limit waits for room to grow, before it is killed",
      "30",
    ),
    describe("--wait-for-room-seconds <number>", "how long a sandbox waits for room if its request does not say", "30"),
    describe("--reserve-memory-mb <number|none>", "memory of the host that sandboxes never get, in MiB", "none"),
    describe("--reserve-pids <number|none>", "processes of the host that sandboxes never get", "none"),
    describe("--reserve-disk-mb <number|none>", "disk that sandboxes never get, in MiB", "none"),
    describe("--overcommit-memory <number>", "how many times over the host's memory is promised", "1"),
    describe("--overcommit-pids <number>", "how many times over its processes are promised", "1"),
    describe("--overcommit-disk <number>", "how many times over its disk is promised", "1"),
    describe("--warm-per-shape <number>", "sandboxes of one image and size that are kept ready; 0: none", "2"),
    describe("--warm-total <number>", "sandboxes that are kept ready in all; 0: none", "8"),
    describe("--warm-max-age-seconds <number>", "how long one is kept ready that nobody asks for", "600"),
    describe("--warm-keep-free-percent <number>", "how much of the budget must stay free beside them", "25"),
  ];
}

function pressureOptions(): Option[] {
  return [
    describe("--pressure-source <auto|psi|usage>", "what pressure on memory is told from", "auto").choices([
      "auto",
      "psi",
      "usage",
    ]),
    describe(
      "--pressure-stall <json>",
      "percent of time lost to waiting for memory, for notice, warn, throttle, freeze and refuse",
      "[20,40,60,75,90]",
    ),
    describe("--host-pressure-usage <json>", "the same as percent of the host's memory", "[80,85,90,95,98]"),
    describe("--sandbox-pressure-usage <json>", "the same as percent of a sandbox's limit", "[75,85,92,97,99]"),
    describe(
      "--process-thresholds <json>",
      "percent of processes at which a warning is given, a clean-up made, and nothing new begun",
      "[60,80,90]",
    ),
    describe("--pressure-hold-seconds <number>", "how long it must have been better before a stage is left", "10"),
    describe("--pressure-every-seconds <number>", "how often each sandbox is looked at for pressure", "5"),
    describe("--sweep-every-seconds <number>", "how often processes that belong to nobody are looked for", "60"),
    describe("--freeze-idle-seconds <number>", "how long idle before it is frozen when memory is short", "60"),
    describe("--throttled-commands <number>", "commands at once in a sandbox that is throttled", "2"),
    describe("--throttle-wait-seconds <number>", "how long others wait before they are refused", "10"),
  ];
}

function keyOptions(): Option[] {
  return [
    describe("--key-sandboxes <number|none>", "sandboxes at once, for new keys", "none"),
    describe("--key-memory-mb <number|none>", "the sum of their memory limits in MiB, for new keys", "none"),
    describe("--key-requests-per-second <number|none>", "requests a second, for new keys", "1000"),
  ];
}

function keepingOptions(): Option[] {
  return [
    stateDirOption(),
    poolOption(),
    describe("--sample-seconds <number>", "how often each sandbox's counters are looked at", "5"),
    describe("--sample-retention-hours <number>", "how long those looks are kept", "1"),
    describe("--ended-retention-hours <number>", "how long an ended sandbox can be asked about", "24"),
    describe(
      "--metrics-access <who>",
      "who may read /metrics. local: who asks from this machine, others with the operator's key",
      "local",
    ).choices(["local", "key", "open"]),
    describe("--drain-seconds <number>", "how long requests may take to finish when the server stops", "10"),
    describe("--log-level <level>", "the least important messages that are logged", "info").choices([
      "fatal",
      "error",
      "warn",
      "info",
      "debug",
      "trace",
      "silent",
    ]),
  ];
}

const EXAMPLES = `
Examples:
  holdfast serve
  holdfast serve --domain sandbox.example.com --tls --host 0.0.0.0
  holdfast serve --tls-certificate chain.pem --tls-key key.pem --tls --domain sandbox.example.com --host 0.0.0.0 --port 443
  holdfast serve --config /etc/holdfast.json --print-config
  holdfast serve --json --port 0 | jq -r .url

Every setting can also stand in the file that --config or HOLDFAST_CONFIG names, as JSON, and in the environment, as
HOLDFAST_SERVE_PORT and so on; flags win over variables, variables over the file. --print-config shows them all.

SIGTERM and Ctrl-C let requests finish and leave sandboxes running; the next start takes them over.`;

export function addServeCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("serve")
    .showHelpAfterError("  Try `holdfast serve --help`.")
    .summary("serve E2B's API, and our own, on this machine")
    .description(
      "Serves sandboxes over HTTP: E2B's API, which the e2b packages for JavaScript and Python speak, and our own. The first start makes an API key and prints it. Needs root.",
    )
    .addHelpText("after", EXAMPLES);
  for (const option of networkOptions()) command.addOption(option.helpGroup("Network:"));
  for (const option of sandboxOptions()) command.addOption(option.helpGroup("Sandboxes:"));
  for (const option of budgetOptions()) command.addOption(option.helpGroup("The host's budget:"));
  for (const option of pressureOptions()) command.addOption(option.helpGroup("Pressure:"));
  for (const option of imageOptions()) command.addOption(option.helpGroup("Images:"));
  for (const option of keyOptions()) command.addOption(option.helpGroup("Keys:"));
  for (const option of keepingOptions()) command.addOption(option.helpGroup("Keeping:"));
  command
    .option("--config <file>", "a JSON file with settings")
    .option("--print-config", "print every setting, its value, where that came from and what it means; then end")
    .option(
      "--json",
      "when ready, print { url, socketPath, domain, caPath, apiKey, pid } as one line, and nothing else",
    )
    .action(async (flags: ServeFlags) => {
      const { serve } = await import("../serve/serve.js");
      setExitCode(await serve(flags));
    });
}
