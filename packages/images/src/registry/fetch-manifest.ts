/** The one manifest that a reference comes to on this platform, and its config: small, checked, held in memory. */
import type { Digest } from "@holdfast/recipe";
import { digestOf, isDigest } from "../layers/digest.js";
import { parseConfig } from "../oci/config.js";
import { parseManifest } from "../oci/parse-manifest.js";
import { choosePlatform, formatPlatform, hostPlatform, isSamePlatform } from "../oci/platform.js";
import { imageInvalid } from "../oci/read-json.js";
import {
  type Descriptor,
  INDEX_MEDIA_TYPES,
  MANIFEST_MEDIA_TYPES,
  MAX_CONFIG_BYTES,
  MAX_MANIFEST_BYTES,
  type OciConfig,
  type OciManifest,
  type Platform,
} from "../oci/types.js";
import { wrongContent } from "./errors.js";
import type { RegistryClient } from "./http.js";
import { formatReference, type RegistryReference } from "./reference.js";

export interface FetchedManifest {
  readonly digest: Digest;
  readonly manifest: OciManifest;
  readonly config: OciConfig;
}

/** Lists of lists are allowed, but not for ever. */
const MAX_DEPTH = 3;

export async function fetchManifest(
  client: RegistryClient,
  reference: RegistryReference,
  options: { readonly platform?: Platform | undefined; readonly signal?: AbortSignal | undefined },
): Promise<FetchedManifest> {
  const what = formatReference(reference);
  let wanted: { readonly by: string; readonly descriptor?: Pick<Descriptor, "digest" | "size"> | undefined } = {
    by: reference.digest ?? reference.tag ?? "latest",
  };
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const doing = `reading the manifest of ${depth === 0 ? what : `${reference.registry}/${reference.repository}@${wanted.by}`}`;
    const { response, body } = await client.requestSmall(
      {
        method: "GET",
        url: `/v2/${reference.repository}/manifests/${wanted.by}`,
        scopes: [`repository:${reference.repository}:pull`],
        doing,
        expect: [200],
        headers: { accept: [...MANIFEST_MEDIA_TYPES, ...INDEX_MEDIA_TYPES].join(", ") },
        signal: options.signal,
      },
      MAX_MANIFEST_BYTES,
    );
    const digest = digestOf(body);
    const promised =
      wanted.descriptor?.digest ??
      (depth === 0 ? reference.digest : null) ??
      header(response.headers["docker-content-digest"]);
    if (promised !== undefined && promised !== digest) {
      throw wrongContent(client.registry, `${doing}: its content is ${digest}, not ${promised} as promised`, {
        expected: promised,
        actual: digest,
      });
    }
    const parsed = parseManifest(body, { what: `manifest of ${what}`, mediaType: response.headers["content-type"] });
    if (parsed.kind === "manifest") {
      return {
        digest,
        manifest: parsed.manifest,
        config: await fetchConfig(client, reference, parsed.manifest, options),
      };
    }
    const chosen = choosePlatform(parsed.index.manifests, { wanted: options.platform, what });
    wanted = { by: chosen.digest, descriptor: chosen };
  }
  throw imageInvalid(`${what}: lists of lists of manifests, more than ${MAX_DEPTH} deep`);
}

function header(value: string | string[] | undefined): Digest | undefined {
  return isDigest(value) ? value : undefined;
}

async function fetchConfig(
  client: RegistryClient,
  reference: RegistryReference,
  manifest: OciManifest,
  options: { readonly platform?: Platform | undefined; readonly signal?: AbortSignal | undefined },
): Promise<OciConfig> {
  const what = formatReference(reference);
  const { digest } = manifest.config;
  const { body } = await client.requestSmall(
    {
      method: "GET",
      url: `/v2/${reference.repository}/blobs/${digest}`,
      scopes: [`repository:${reference.repository}:pull`],
      doing: `reading the config of ${what}`,
      expect: [200],
      signal: options.signal,
    },
    MAX_CONFIG_BYTES,
  );
  const actual = digestOf(body);
  if (actual !== digest) {
    throw wrongContent(client.registry, `the config of ${what}: its content is ${actual}, not ${digest} as promised`, {
      expected: digest,
      actual,
    });
  }
  const config = parseConfig(body, `config of ${what}`);
  const count = config.rootfs.diff_ids.length;
  if (count !== manifest.layers.length) {
    throw imageInvalid(`${what}: its manifest has ${manifest.layers.length} layers and its config ${count}`);
  }
  const platform = options.platform ?? hostPlatform();
  if (!isSamePlatform(config, platform)) {
    throw imageInvalid(
      `${what}: it is for ${formatPlatform(config)}, not for ${formatPlatform(platform)}`,
      `To have it all the same, ask for it: --platform ${formatPlatform(config)}.`,
      { platform: formatPlatform(config) },
    );
  }
  return config;
}
