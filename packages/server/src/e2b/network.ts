/** E2B's network settings: what a client may say, and what it is told back. */
import { isIP, isIPv4 } from "node:net";
import { invalidArgument } from "@holdfast/protocol";
import { z } from "zod";
import type { NetworkSettings } from "../store/store.js";

const ENVD_PORT = 49983;
const EVERYTHING = "0.0.0.0/0";
const MAX_RULES = 1000;
const MAX_DOMAIN_CHARACTERS = 253;

const DOMAIN = /^(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/i;

function isAddressOrBlock(text: string): boolean {
  const slash = text.indexOf("/");
  if (slash === -1) return isIP(text) !== 0;
  const address = text.slice(0, slash);
  const bits = text.slice(slash + 1);
  if (isIP(address) === 0 || !/^(?:0|[1-9]\d{0,2})$/.test(bits)) return false;
  return Number(bits) <= (isIPv4(address) ? 32 : 128);
}

/** A name whose last label is a number is a mistyped address, never a domain. */
function isDomain(text: string): boolean {
  return text.length <= MAX_DOMAIN_CHARACTERS && DOMAIN.test(text) && !/(?:^|\.)\d+$/.test(text);
}

function isHostAndPort(text: string): boolean {
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain ?? "";
  const hostIsRight =
    bracketed === undefined ? isIPv4(host) || (isDomain(host) && !host.startsWith("*")) : isIP(host) === 6;
  return hostIsRight && Number(port) >= 1 && Number(port) <= 65_535;
}

function isHostMask(text: string): boolean {
  const host = text.replaceAll(`\${PORT}`, "49983");
  return isHostAndPort(host) || isIPv4(host) || (isDomain(host) && !host.startsWith("*"));
}

function textWhere(check: (text: string) => boolean, expected: string) {
  return z.string({ error: expected }).refine(check, { error: expected });
}

function listOf<Item extends z.ZodType>(item: Item, expected: string) {
  return z.array(item, { error: expected }).max(MAX_RULES, { error: `at most ${MAX_RULES} entries` });
}

/** RFC 9110: a header's name is a token, and its value holds no control characters. */
const headers = z.record(
  z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/, { error: "a header's name" }),
  textWhere((text) => text.length <= 8192 && isHeaderValue(text), "a header's value, of at most 8192 characters"),
  { error: "an object of header names and values" },
);

function isHeaderValue(text: string): boolean {
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if ((code < 0x20 && code !== 0x09) || code === 0x7f) return false;
  }
  return true;
}

const rule = z.strictObject({ transform: z.strictObject({ headers: headers.optional() }).optional() });

const rules = z
  .record(
    textWhere(isDomain, "a domain like api.example.com or *.example.com").transform((domain) => domain.toLowerCase()),
    listOf(rule, "a list of rules"),
    { error: "an object of domains and lists of rules" },
  )
  .refine((given) => Object.keys(given).length <= MAX_RULES, { error: `at most ${MAX_RULES} domains` });

const credential = textWhere((text) => Buffer.byteLength(text) <= 255, "a text of at most 255 bytes");

const egressProxy = z
  .strictObject({
    address: textWhere(isHostAndPort, "host:port, like proxy.example.com:1080"),
    username: credential.optional(),
    password: credential.optional(),
  })
  .refine((proxy) => proxy.password === undefined || proxy.username !== undefined, {
    error: "a username beside the password",
    path: ["username"],
  })
  .nullable();

const egress = {
  allowOut: listOf(
    textWhere((text) => isAddressOrBlock(text) || isDomain(text), "an IP address, a CIDR block or a domain"),
    "a list of IP addresses, CIDR blocks and domains",
  ).optional(),
  denyOut: listOf(
    textWhere(isAddressOrBlock, "an IP address or a CIDR block (domains can only be allowed)"),
    "a list of IP addresses and CIDR blocks",
  ).optional(),
  rules: rules.optional(),
  egressProxy: egressProxy.optional(),
};

const httpsPort = z
  .int({ error: "a port from 1 to 65535" })
  .min(1, { error: "a port from 1 to 65535" })
  .max(65_535, { error: "a port from 1 to 65535" })
  .refine((port) => port !== ENVD_PORT, { error: `a port other than ${ENVD_PORT}, which is the sandbox's own` });

/** `network` of a create. */
export const networkSchema = z.strictObject({
  ...egress,
  allowPublicTraffic: z.boolean().optional(),
  maskRequestHost: textWhere(isHostMask, `a host, in which \${PORT} stands for the port`).optional(),
  httpsPorts: listOf(httpsPort, "a list of ports").optional(),
});

/** The body of a network update: what goes out. How requests come in stays as it was made. */
export const networkUpdateSchema = z.strictObject({ ...egress, allow_internet_access: z.boolean().optional() });

interface Egress {
  readonly allowOut?: readonly string[] | undefined;
  readonly denyOut?: readonly string[] | undefined;
}

function requireDenyForDomains(given: Egress, allowInternetAccess: boolean | undefined, prefix: string): void {
  const domain = given.allowOut?.find((entry) => !isAddressOrBlock(entry));
  if (domain === undefined || allowInternetAccess === false || given.denyOut?.includes(EVERYTHING)) return;
  throw invalidArgument(
    `${prefix}denyOut`,
    given.denyOut === undefined ? "nothing" : given.denyOut.join(", ").slice(0, 100),
    `${EVERYTHING} in it, because allowOut has the domain ${domain}: everything else is to be denied`,
  );
}

function withoutUndefined(given: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null));
}

export function networkFromCreate(
  given: z.output<typeof networkSchema> | undefined,
  allowInternetAccess: boolean | undefined,
): NetworkSettings {
  if (given !== undefined) requireDenyForDomains(given, allowInternetAccess, "network.");
  return {
    allowInternetAccess: allowInternetAccess ?? null,
    allowPublicTraffic: given?.allowPublicTraffic ?? true,
    settings: given === undefined ? null : withoutUndefined(given),
  };
}

const INGRESS = ["allowPublicTraffic", "maskRequestHost", "httpsPorts"];

/** Replaces all that is about traffic out; what is omitted is cleared. */
export function networkFromUpdate(
  before: NetworkSettings,
  given: z.output<typeof networkUpdateSchema>,
): NetworkSettings {
  const { allow_internet_access: allowInternetAccess, ...egressNow } = given;
  requireDenyForDomains(egressNow, allowInternetAccess, "");
  const kept = Object.entries(before.settings ?? {}).filter(([name]) => INGRESS.includes(name));
  return {
    allowInternetAccess: allowInternetAccess ?? null,
    allowPublicTraffic: before.allowPublicTraffic,
    settings: { ...Object.fromEntries(kept), ...withoutUndefined(egressNow) },
  };
}

/** As given, but a proxy's password is never told back. */
export function shownNetwork(network: NetworkSettings): Readonly<Record<string, unknown>> {
  const { egressProxy: proxy, ...rest } = network.settings ?? {};
  const shown: Record<string, unknown> = { ...rest, allowPublicTraffic: network.allowPublicTraffic };
  if (typeof proxy === "object" && proxy !== null) {
    shown.egressProxy = Object.fromEntries(Object.entries(proxy).filter(([name]) => name !== "password"));
  }
  return shown;
}
