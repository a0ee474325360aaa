/**
 * Certificates for tests, made while they run: neither a program nor a file with an end date is needed.
 *
 * @module
 */

/** A certificate and its private key, as PEM text. */
export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
}

/** The subject and addresses of a leaf certificate. */
export interface TestLeafOptions {
  /** CN of the subject. */
  readonly commonName: string;
  /** DNS names it is valid for. */
  readonly dnsNames?: readonly string[];
  /** IPv4 addresses it is valid for. */
  readonly ipv4?: readonly string[];
  /** Its end, in milliseconds since 1970. @default {an hour from now} */
  readonly notAfter?: number;
}

/** A certificate authority that lives as long as a test. */
export interface TestCertificateAuthority {
  /** The CA's certificate, PEM. */
  readonly cert: string;
  /** Issues a certificate that is good for servers and for clients. */
  issue(options: TestLeafOptions): Promise<TestCertificate>;
}

const HOUR = 3_600_000;
const ALGORITHM = { name: "ECDSA", namedCurve: "P-256" } as const;

/** Makes a CA of its own. */
export async function createTestCertificateAuthority(
  name = "kube-relay test CA",
): Promise<TestCertificateAuthority> {
  const pair = await crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
  const sign = (subject: string, publicKey: CryptoKey, options: Partial<TestLeafOptions>) =>
    certificate({ subject, publicKey, issuer: name, signer: pair.privateKey, ...options });
  return {
    cert: await sign(name, pair.publicKey, {}),
    async issue(options) {
      const leaf = await crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
      return {
        cert: await sign(options.commonName, leaf.publicKey, { dnsNames: [], ...options }),
        key: pem("PRIVATE KEY", await crypto.subtle.exportKey("pkcs8", leaf.privateKey)),
      };
    },
  };
}

interface CertificateOptions extends Partial<TestLeafOptions> {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: CryptoKey;
  readonly signer: CryptoKey;
}

// X.509 (RFC 5280) in DER, as far as these certificates need it.
const OID_COMMON_NAME = [0x55, 0x04, 0x03];
const OID_ECDSA_SHA256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const OID_BASIC_CONSTRAINTS = [0x55, 0x1d, 0x13];
const OID_ALT_NAMES = [0x55, 0x1d, 0x11];

async function certificate(options: CertificateOptions): Promise<string> {
  const algorithm = sequence(der(0x06, OID_ECDSA_SHA256));
  const notAfter = options.notAfter ?? Date.now() + HOUR;
  const body = sequence(
    der(0xa0, der(0x02, [2])),
    der(0x02, [0x01, ...crypto.getRandomValues(new Uint8Array(8))]),
    algorithm,
    name(options.issuer),
    sequence(time(Math.min(Date.now(), notAfter) - HOUR), time(notAfter)),
    name(options.subject),
    [...new Uint8Array(await crypto.subtle.exportKey("spki", options.publicKey))],
    der(0xa3, sequence(...extensions(options))),
  );
  const hash = { name: "ECDSA", hash: "SHA-256" };
  const raw = new Uint8Array(await crypto.subtle.sign(hash, options.signer, new Uint8Array(body)));
  const signature = sequence(integer(raw.subarray(0, 32)), integer(raw.subarray(32)));
  return pem(
    "CERTIFICATE",
    new Uint8Array(sequence(body, algorithm, der(0x03, [0, ...signature]))),
  );
}

function extensions({ dnsNames, ipv4 = [] }: CertificateOptions): number[][] {
  if (dnsNames === undefined) {
    return [extension(OID_BASIC_CONSTRAINTS, sequence(der(0x01, [0xff])))];
  }
  const names = [
    ...dnsNames.map((dnsName) => der(0x82, text(dnsName))),
    ...ipv4.map((address) => der(0x87, address.split(".").map(Number))),
  ];
  const leaf = extension(OID_BASIC_CONSTRAINTS, sequence());
  return names.length === 0 ? [leaf] : [leaf, extension(OID_ALT_NAMES, sequence(...names))];
}

function extension(oid: number[], value: number[]): number[] {
  return sequence(der(0x06, oid), der(0x04, value));
}

function name(commonName: string): number[] {
  const attribute = sequence(der(0x06, OID_COMMON_NAME), der(0x0c, text(commonName)));
  return sequence(der(0x31, attribute));
}

function time(ms: number): number[] {
  return der(0x18, text(new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "")));
}

function integer(bytes: Uint8Array): number[] {
  const first = bytes.findIndex((byte) => byte !== 0);
  const digits = [...bytes.subarray(first === -1 ? bytes.length - 1 : first)];
  return der(0x02, digits[0]! >= 0x80 ? [0, ...digits] : digits);
}

function sequence(...parts: number[][]): number[] {
  return der(0x30, parts.flat());
}

function der(tag: number, content: readonly number[]): number[] {
  const { length } = content;
  if (length < 0x80) return [tag, length, ...content];
  if (length < 0x100) return [tag, 0x81, length, ...content];
  return [tag, 0x82, length >> 8, length & 0xff, ...content];
}

function text(value: string): number[] {
  return [...new TextEncoder().encode(value)];
}

function pem(label: string, bytes: BufferSource): string {
  const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes as Uint8Array;
  const lines = btoa(String.fromCharCode(...view)).match(/.{1,64}/g)!;
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
