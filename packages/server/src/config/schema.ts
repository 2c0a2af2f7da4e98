/** Every setting of the server, once: what it means, what it may be, what it is if nobody says. */
import { isIP } from "node:net";
import { availableParallelism } from "node:os";
import { ADDRESS_RULE, DEFAULT_STATE_DIRECTORY, isAddressRule, POOL_KINDS } from "@holdfast/engine";
import { MAX_TIMEOUT_MS } from "@holdfast/protocol";
import { z } from "zod";
import { METRICS_ACCESS } from "./metrics-access.js";
import { pressureFields } from "./pressure-fields.js";

export const TLS_MODES = ["off", "self", "files"] as const;
export const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** The names of sandboxes come before it, and the whole must fit into a DNS name. */
const MAX_DOMAIN_LENGTH = 200;
const LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
const DNS_NAME = new RegExp(`^${LABEL}(?:\\.${LABEL})*$`, "i");
const TEMPLATE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const MAX_MEGABYTES = 1024 * 1024 * 1024;

/** Messages say what is expected; whoever reports them adds the field, the value and where it came from. */
function wholeNumber(unit: string, min: number, max: number) {
  return integer(`a whole number of ${unit} from ${min} to ${max}`, min, max);
}

function integer(error: string, min: number, max: number) {
  return z.int({ error }).min(min, { error }).max(max, { error });
}

function amount(unit: string, min: number, max: number) {
  const error = `a number of ${unit} from ${min} to ${max}`;
  return z.number({ error }).min(min, { error }).max(max, { error });
}

function oneOf<const Values extends readonly [string, ...string[]]>(values: Values) {
  return z.enum(values, { error: `one of ${values.join(", ")}` });
}

function absolutePath() {
  const error = "an absolute path";
  return z.string({ error }).refine((path) => path.startsWith("/") && !path.includes("\0"), { error });
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** As the engine understands them. Found out here, it is one setting that is wrong, and not every build. */
const addressRule = () => z.string({ error: ADDRESS_RULE }).refine(isAddressRule, { error: ADDRESS_RULE });

const memoryMb = () => wholeNumber("MiB", 8, MAX_MEGABYTES);
const cpus = () => amount("CPUs", 0.01, 1000);
const pids = () => wholeNumber("processes", 8, 4_194_304);
const overcommit = () => amount("times", 1, 1000).default(1);
const diskMb = () => wholeNumber("MiB", 1, MAX_MEGABYTES);

export interface TemplateLimits {
  readonly memoryMb?: number | undefined;
  readonly memoryStartMb?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly diskMb?: number | undefined;
}

export type TemplateConfig = TemplateLimits &
  ({ readonly rootfs: string } | { readonly host: true } | { readonly image: string });

const templateFields = {
  rootfs: absolutePath().optional().describe("A directory with a root file system; never written to"),
  host: z.literal(true, { error: "true" }).optional().describe("The host's own programs, read-only"),
  image: z
    .string({ error: "the name of an image" })
    .min(1)
    .max(256)
    .optional()
    .describe("An image of this host, by name"),
  memoryMb: memoryMb().optional().describe("Instead of sandboxMemoryMb"),
  memoryStartMb: memoryMb().optional().describe("Instead of sandboxMemoryStartMb"),
  cpus: cpus().optional().describe("Instead of sandboxCpus"),
  pids: pids().optional().describe("Instead of sandboxPids"),
  diskMb: diskMb().optional().describe("Instead of sandboxDiskMb"),
};
export const TEMPLATE_KEYS: readonly string[] = Object.keys(templateFields);

const templateSchema = z
  .strictObject(templateFields, {
    error: (issue) =>
      issue.code === "unrecognized_keys" ? undefined : 'an object such as {"rootfs":"/srv/images/py"}',
  })
  .refine(({ rootfs, host, image }) => [rootfs, host, image].filter((given) => given !== undefined).length === 1, {
    error: "one of rootfs (an absolute path), host (true) and image (a name)",
  })
  .transform((template) => template as TemplateConfig);

const domainSchema = z
  .string({ error: "a DNS name such as sandbox.example.com" })
  .refine((name) => DNS_NAME.test(name) && name.length <= MAX_DOMAIN_LENGTH && isIP(name) === 0, {
    error: `a DNS name such as sandbox.example.com, without a port, of at most ${MAX_DOMAIN_LENGTH} characters`,
  })
  .transform((name) => name.toLowerCase());

const fields = {
  host: z
    .string({ error: "an IP address or a host name" })
    .refine((host) => isIP(host) !== 0 || DNS_NAME.test(host), { error: "an IP address or a host name" })
    .default("127.0.0.1")
    .describe("The address to listen on"),
  port: integer("a port from 0 to 65535", 0, 65_535)
    .default(3000)
    .describe("The port to listen on; 0 takes any that is free"),
  domain: domainSchema
    .nullable()
    .default(null)
    .describe("Under it every sandbox has its name, <port>-<id>.<domain>; its DNS must lead here. Null: none"),
  tls: oneOf(TLS_MODES)
    .default("off")
    .describe("HTTPS: off; self, with a certificate from a small CA of our own; files, with yours"),
  tlsCertificate: absolutePath()
    .nullable()
    .default(null)
    .describe("With tls files: the certificate and its chain, PEM. It must be for <domain> and *.<domain>"),
  tlsKey: absolutePath().nullable().default(null).describe("With tls files: the certificate's private key, PEM"),
  allowPlainHttp: z
    .boolean({ error: "true or false" })
    .default(false)
    .describe(
      "Listen on addresses other than this machine's own without TLS: keys and data cross the network readable",
    ),
  stateDirectory: absolutePath()
    .default(DEFAULT_STATE_DIRECTORY)
    .describe("Where sandboxes, their disks, the database and our own CA are kept"),
  pool: oneOf(POOL_KINDS).default("btrfs").describe("What sandboxes' disks are kept on"),
  templates: z
    .record(
      z.string().regex(TEMPLATE_NAME, { error: "a name of letters, digits, dots, hyphens and underscores" }),
      templateSchema,
      { error: 'an object such as {"python":{"rootfs":"/srv/images/python"}}' },
    )
    .default({})
    .transform((templates): Record<string, TemplateConfig> => ({ base: { host: true }, ...templates }))
    .describe(
      "What sandboxes can be made from, by name; base is always there, from the host's own programs unless said otherwise",
    ),
  imageAliases: z
    .record(z.string().min(1).max(256), z.string().min(1).max(4096), {
      error: 'an object such as {"ubuntu:22.04":"base"}',
    })
    .default({})
    .describe(
      "Names that images are built on, and what they stand for here: another name, or the path of an archive to import",
    ),
  imagePull: z
    .boolean({ error: "true or false" })
    .default(true)
    .describe("Whether a name that is not known here is looked for in its registry when an image is built on it"),
  debianMirror: z
    .url({ error: "an http or https address", protocol: /^https?$/ })
    .default("http://deb.debian.org/debian")
    .describe("Where the base image's packages come from"),
  debianSecurityMirror: z
    .url({ error: "an http or https address", protocol: /^https?$/ })
    .default("http://deb.debian.org/debian-security")
    .describe("Where the base image's security updates come from"),
  scratchDirectory: absolutePath()
    .nullable()
    .default(null)
    .describe("Where temporary files of builds and transfers go; null: HOLDFAST_SCRATCH_DIR, or the state directory"),
  buildParallel: wholeNumber("builds", 1, 64).default(2).describe("How many images are built at once; others wait"),
  buildAllow: z
    .array(addressRule(), { error: 'a list such as ["10.1.2.3:3141"]' })
    .default([])
    .describe(
      "Addresses of this host or its surroundings that build steps, and registries that keys name, may have although they could not otherwise",
    ),
  buildDeny: z
    .array(addressRule(), { error: 'a list such as ["10.0.0.0/8"]' })
    .default([])
    .describe("Addresses that build steps, and registries that keys name, must not have"),
  sandboxMemoryMb: memoryMb().default(512).describe("Memory of a sandbox that does not ask for another amount"),
  sandboxMemoryStartMb: memoryMb()
    .default(128)
    .describe("What it starts with of that, to grow as it needs it. As much as sandboxMemoryMb: it has it all at once"),
  sandboxCpus: cpus()
    .default(() => Math.min(2, availableParallelism()))
    .describe("CPUs of a sandbox that does not ask for another number; may be a fraction"),
  sandboxPids: pids().default(512).describe("Processes and threads of a sandbox that does not ask for another number"),
  sandboxDiskMb: diskMb().default(1024).describe("Disk of a sandbox that does not ask for another amount"),
  sandboxOutputKb: wholeNumber("KiB", 4, 16_384)
    .default(1024)
    .describe("How much of each command's stdout and of its stderr stays readable"),
  holdSeconds: amount("seconds", 0, 86_400)
    .default(30)
    .describe(
      "How long a sandbox that is held at its memory limit waits for room to grow, before the kernel kills in it",
    ),
  waitForRoomSeconds: amount("seconds", 0, 86_400)
    .default(30)
    .describe("How long a sandbox waits for room on the host if its request does not say; 0: it fails at once"),
  reserveMemoryMb: wholeNumber("MiB", 0, MAX_MEGABYTES)
    .nullable()
    .default(null)
    .describe("Memory of the host that sandboxes never get. Null: a twentieth of it, from 192 MiB to 2 GiB"),
  reservePids: wholeNumber("processes", 0, 4_194_304)
    .nullable()
    .default(null)
    .describe("Processes of the host that sandboxes never get. Null: a twentieth of them, from 32 to 1024"),
  reserveDiskMb: wholeNumber("MiB", 0, MAX_MEGABYTES)
    .nullable()
    .default(null)
    .describe("Disk that sandboxes never get. Null: a fiftieth of it, from 256 MiB to 5 GiB"),
  overcommitMemory: overcommit().describe("How many times over the host's memory is promised; 1: not at all"),
  overcommitPids: overcommit().describe("How many times over the host's processes are promised; 1: not at all"),
  overcommitDisk: overcommit().describe("How many times over the disk is promised; 1: not at all"),
  ...pressureFields,
  warmPerShape: wholeNumber("sandboxes", 0, 1000)
    .default(2)
    .describe("How many sandboxes of one image and size are kept ready once they were asked for; 0: none"),
  warmTotal: wholeNumber("sandboxes", 0, 10_000)
    .default(8)
    .describe("How many sandboxes are kept ready in all; 0: none"),
  warmMaxAgeSeconds: amount("seconds", 1, 86_400)
    .default(600)
    .describe("How long a sandbox is kept ready that nobody asks for"),
  warmKeepFreePercent: amount("percent", 0, 100)
    .default(25)
    .describe("How much of the host's budget must stay free beside the sandboxes that are kept ready"),
  volumeMb: diskMb().default(10_240).describe("How much a volume may hold"),
  maxTimeoutSeconds: wholeNumber("seconds", 1, MAX_TIMEOUT_MS / 1000)
    .default(86_400)
    .describe("The longest time to live that a sandbox can be given at once; it can be extended again and again"),
  keySandboxes: wholeNumber("sandboxes", 1, 1_000_000)
    .nullable()
    .default(null)
    .describe("For new keys: how many sandboxes may be alive at once, paused ones included. Null: no limit"),
  keyMemoryMb: memoryMb()
    .nullable()
    .default(null)
    .describe("For new keys: the sum of the memory limits of living sandboxes. Null: what the host has"),
  keyRequestsPerSecond: amount("requests a second", 0.01, 1_000_000)
    .nullable()
    .default(1000)
    .describe("For new keys: requests to the API a second; twice as many may come at once. Null: no limit"),
  sampleSeconds: amount("seconds", 0.1, 3600).default(5).describe("How often each sandbox's counters are looked at"),
  sampleRetentionHours: amount("hours", 0, 720).default(1).describe("How long those looks are kept"),
  endedRetentionHours: amount("hours", 0, 8760)
    .default(24)
    .describe("How long a sandbox that has ended can be asked about: its cause, events and post-mortem"),
  metricsAccess: oneOf(METRICS_ACCESS)
    .default("local")
    .describe(
      "Who may read /metrics: local, whoever asks from this machine and not through a proxy, others with the operator's key; key, with that key only; open, everybody",
    ),
  drainSeconds: amount("seconds", 0, 3600)
    .default(10)
    .describe("How long requests may take to finish when the server is told to stop"),
  logLevel: oneOf(LOG_LEVELS).default("info").describe("The least important messages that are logged"),
};

export const serverConfigSchema = z.strictObject(fields).superRefine((config, context) => {
  const refuse = (field: keyof typeof fields, message: string, hint: string) =>
    context.addIssue({ code: "custom", path: [field], message, params: { hint } });
  if (config.tls === "self" && config.domain === null) {
    refuse("tls", "a certificate of our own needs a name to be for", "Give a domain, or your own certificate.");
  }
  if (config.tls === "self" && config.domain?.includes(".") === false) {
    refuse(
      "domain",
      "clients accept no certificate for all names below a single word",
      `Take a name of two words, such as sandbox.${config.domain}.`,
    );
  }
  for (const field of ["tlsCertificate", "tlsKey"] as const) {
    if (config.tls === "files" && config[field] === null) {
      refuse(field, 'is needed with tls "files"', "Give both the certificate and its key.");
    }
    if (config.tls !== "files" && config[field] !== null) {
      refuse(field, `has no use with tls "${config.tls}"`, 'Set tls to "files", or leave it out.');
    }
  }
  if (config.tls === "off" && !config.allowPlainHttp && !isLoopback(config.host)) {
    refuse(
      "host",
      "API keys would cross the network readable, because tls is off",
      "Turn tls on, listen on 127.0.0.1, or set allowPlainHttp if something in front of the server adds TLS.",
    );
  }
});

export type ServerConfig = Readonly<z.output<typeof serverConfigSchema>>;
export type ConfigField = keyof ServerConfig;

export function defaultConfig(): ServerConfig {
  return serverConfigSchema.parse({});
}
