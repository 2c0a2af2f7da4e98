/** Makes certificates. Keys are ECDSA on P-256, which every client knows. */
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, webcrypto } from "node:crypto";
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import { encodeNameConstraints, NAME_CONSTRAINTS } from "./name-constraints.js";

const DAY_MS = 24 * 3600 * 1000;
const AUTHORITY_DAYS = 3650;
/** Browsers refuse server certificates that are valid for longer than 398 days. */
const SERVER_DAYS = 397;
/** A client whose clock is a little slow must not find it too young. */
const BACKDATED_MS = 3600 * 1000;
/** The standard's limit for this field. */
const MAX_COMMON_NAME = 64;

const ECDSA = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

export interface Issued {
  readonly certificate: string;
  readonly key: string;
}

interface KeyPair {
  readonly pem: string;
  readonly signingKey: webcrypto.CryptoKey;
  readonly publicKey: webcrypto.CryptoKey;
}

async function importSigningKey(key: KeyObject): Promise<webcrypto.CryptoKey> {
  const der = key.export({ type: "pkcs8", format: "der" });
  return webcrypto.subtle.importKey("pkcs8", der, ECDSA, false, ["sign"]);
}

async function createKeyPair(): Promise<KeyPair> {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  return {
    pem: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    signingKey: await importSigningKey(privateKey),
    publicKey: await webcrypto.subtle.importKey("spki", spki, ECDSA, true, ["verify"]),
  };
}

/** Random, positive and without a leading zero. */
function createSerialNumber(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString("hex");
}

function commonName(name: string): x509.JsonName {
  return [{ CN: [name.slice(0, MAX_COMMON_NAME)] }];
}

export async function issueAuthority(domain: string, nowMs: number): Promise<Issued> {
  const keys = await createKeyPair();
  const notBefore = new Date(nowMs - BACKDATED_MS);
  const name = commonName(`Holdfast CA for ${domain}`);
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: createSerialNumber(),
    subject: name,
    issuer: name,
    notBefore,
    notAfter: new Date(notBefore.getTime() + AUTHORITY_DAYS * DAY_MS),
    publicKey: keys.publicKey,
    signingKey: keys.signingKey,
    signingAlgorithm: ECDSA,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      new x509.Extension(NAME_CONSTRAINTS, true, encodeNameConstraints(domain)),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate: `${certificate.toString("pem")}\n`, key: keys.pem };
}

export function serverNames(domain: string): string[] {
  return [domain, `api.${domain}`, `*.${domain}`];
}

export async function issueServerCertificate(authority: Issued, domain: string, nowMs: number): Promise<Issued> {
  const keys = await createKeyPair();
  const issuer = new x509.X509Certificate(authority.certificate);
  const notBefore = new Date(nowMs - BACKDATED_MS);
  const notAfter = Math.min(notBefore.getTime() + SERVER_DAYS * DAY_MS, issuer.notAfter.getTime());
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: createSerialNumber(),
    subject: commonName(domain.length > MAX_COMMON_NAME ? "Holdfast" : domain),
    issuer: issuer.subjectName,
    notBefore,
    notAfter: new Date(notAfter),
    publicKey: keys.publicKey,
    signingKey: await importSigningKey(createPrivateKey(authority.key)),
    signingAlgorithm: ECDSA,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(serverNames(domain).map((value) => ({ type: "dns", value }))),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate: `${certificate.toString("pem")}\n`, key: keys.pem };
}
