/** A certificate that somebody else made. What is wrong with it is said now, not by every client later. */
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";

export interface LoadedCertificate {
  /** PEM, with the chain as it is in the file. */
  readonly certificate: string;
  readonly key: string;
  readonly expiresAt: Date;
  /** Whether it is for this host name. */
  covers(name: string): boolean;
}

type Field = "tlsCertificate" | "tlsKey";

function unusable(field: Field, path: string, what: string, hint: string, cause?: unknown): HoldfastError {
  return new HoldfastError("invalid_argument", `${field}: ${path} ${what}`, { hint, details: { field, path }, cause });
}

async function read(field: Field, path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    throw unusable(field, path, `cannot be read (${said})`, "Check the path and who may read it.", error);
  }
}

function parseCertificate(path: string, text: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch (error) {
    throw unusable(
      "tlsCertificate",
      path,
      "holds no certificate",
      "It must begin with -----BEGIN CERTIFICATE-----, the server's own first and its chain after it.",
      error,
    );
  }
}

function parseKey(path: string, text: string): KeyObject {
  if (/BEGIN ENCRYPTED|Proc-Type: 4,ENCRYPTED/.test(text)) {
    const hint = "Take the passphrase off: openssl pkey -in FILE -out NEW-FILE. Mode 0600 protects it.";
    throw unusable("tlsKey", path, "is protected by a passphrase, which nobody could type", hint);
  }
  try {
    return createPrivateKey(text);
  } catch (error) {
    throw unusable("tlsKey", path, "holds no private key", "It must be PEM: -----BEGIN PRIVATE KEY-----.", error);
  }
}

export async function loadCertificate(options: {
  readonly certificatePath: string;
  readonly keyPath: string;
  /** Milliseconds since 1970. */
  readonly now?: (() => number) | undefined;
}): Promise<LoadedCertificate> {
  const { certificatePath, keyPath } = options;
  const certificate = await read("tlsCertificate", certificatePath);
  const key = await read("tlsKey", keyPath);
  const parsed = parseCertificate(certificatePath, certificate);
  if (!parsed.checkPrivateKey(parseKey(keyPath, key))) {
    const hint = `The first certificate in ${certificatePath} is for ${parsed.subjectAltName ?? parsed.subject}. Is its chain in front of it?`;
    throw unusable("tlsKey", keyPath, `does not belong to ${certificatePath}`, hint);
  }
  const nowMs = (options.now ?? Date.now)();
  if (Date.parse(parsed.validTo) <= nowMs) {
    throw unusable("tlsCertificate", certificatePath, `expired on ${parsed.validTo}`, "Renew it.");
  }
  if (Date.parse(parsed.validFrom) > nowMs) {
    throw unusable("tlsCertificate", certificatePath, `is valid only from ${parsed.validFrom} on`, "Check the clock.");
  }
  return {
    certificate,
    key,
    expiresAt: new Date(parsed.validTo),
    covers: (name) => parsed.checkHost(name) !== undefined,
  };
}
