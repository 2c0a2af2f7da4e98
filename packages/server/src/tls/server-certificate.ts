/** The certificate that the configuration asks for. */
import type { Log } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { ServerConfig } from "../config/schema.js";
import { loadCertificate } from "./load-certificate.js";
import { prepareCertificate } from "./prepare-certificate.js";

export interface ServerCertificate {
  readonly certificate: string;
  readonly key: string;
  /** What clients must be told to trust; null if it is somebody else's business. */
  readonly caPath: string | null;
}

type TlsConfig = Pick<ServerConfig, "tls" | "tlsCertificate" | "tlsKey" | "domain">;

const EXPIRES_SOON_MS = 14 * 24 * 3600 * 1000;

async function fromFiles(config: TlsConfig, log: Log): Promise<ServerCertificate> {
  const { tlsCertificate, tlsKey, domain } = config;
  if (tlsCertificate === null || tlsKey === null) {
    throw new HoldfastError("invalid_argument", 'tlsCertificate and tlsKey are needed with tls "files"');
  }
  const loaded = await loadCertificate({ certificatePath: tlsCertificate, keyPath: tlsKey });
  // Not refused: a proxy in front may know other names. But most who see this have forgotten the wildcard.
  const uncovered = domain === null ? [] : [`api.${domain}`, `3000-sandbox.${domain}`].filter((n) => !loaded.covers(n));
  if (uncovered.length > 0) {
    log.warn({ tlsCertificate, uncovered }, "the certificate is not for these names, and clients will refuse them");
  }
  if (loaded.expiresAt.getTime() - Date.now() < EXPIRES_SOON_MS) {
    log.warn({ tlsCertificate, expiresAt: loaded.expiresAt }, "the certificate expires soon");
  }
  return { certificate: loaded.certificate, key: loaded.key, caPath: null };
}

export async function serverCertificate(options: {
  readonly config: TlsConfig;
  readonly directory: string;
  readonly log: Log;
}): Promise<ServerCertificate | undefined> {
  const { config, directory, log } = options;
  switch (config.tls) {
    case "off":
      return undefined;
    case "files":
      return fromFiles(config, log);
    case "self": {
      if (config.domain === null) throw new HoldfastError("invalid_argument", 'domain: it is needed with tls "self"');
      const { certificate, key, caPath } = await prepareCertificate({ directory, domain: config.domain, log });
      return { certificate, key, caPath };
    }
  }
}
