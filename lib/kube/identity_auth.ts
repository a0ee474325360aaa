import { createPrivateKey, X509Certificate } from "node:crypto";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import {
  type KubeAuth,
  type KubeAuthDescription,
  KubeAuthError,
  type KubeIdentity,
  type PemSource,
  type TlsMaterial,
} from "./kube_auth.ts";

/** The size of a bundle of several hundred certificates. */
const LONGEST_FILE = 1024 * 1024;

/** A {@linkcode KubeAuth} on files and plugins, which are read again when they change. */
export class IdentityAuth implements KubeAuth {
  readonly server: string;
  #tls: TlsMaterial | undefined;
  /** State of the files at the last read. */
  #fingerprint = "";
  #token: string | undefined;
  /** Whether the kubeconfig names another server now. */
  #hasMoved = false;
  /** The last warning for each unreadable file. */
  readonly #warnings = new Map<string, string>();

  /** `readIdentity` is called again when a file changed, and after a 401; `identity` is its first result. */
  constructor(
    private readonly logger: Logger,
    private readonly readIdentity: () => Promise<KubeIdentity>,
    private identity: KubeIdentity,
  ) {
    this.server = identity.server;
  }

  /** Reads every file. Does not run a plugin: it may fail now and work later. */
  async load(): Promise<void> {
    await this.#update();
    if (this.identity.tokenFile) await this.authorization();
  }

  async tls(): Promise<TlsMaterial> {
    await this.#update();
    const { cert, key } = await this.identity.plugin?.ask() ?? {};
    const tls = this.#tls!;
    if (cert === undefined || key === undefined) return tls;
    // The same object while nothing changed, because another object means a new connection.
    return tls.cert === cert && tls.key === key ? tls : this.#tls = { ...tls, cert, key };
  }

  async authorization(): Promise<string | undefined> {
    // A secret over plain text is not a secret.
    if (new URL(this.server).protocol === "http:") return undefined;
    await this.#update();
    const { tokenFile, plugin, authorization } = this.identity;
    if (plugin) return (await plugin.ask()).authorization;
    if (!tokenFile) return authorization;
    // The file may belong to the other server already.
    if (this.#hasMoved && this.#token !== undefined) return `Bearer ${this.#token}`;
    await this.#keepingFormer("token", this.#token, async () => {
      const token = (await readText(tokenFile)).trim();
      if (!/^[\x21-\x7e]+$/.test(token)) {
        throw new KubeAuthError(
          `Cannot use ${tokenFile.field}: '${tokenFile.file}' has to hold one token and nothing else`,
        );
      }
      this.#token = token;
    });
    return `Bearer ${this.#token}`;
  }

  async refresh(): Promise<void> {
    this.#fingerprint = "";
    await this.#update();
    this.identity.plugin?.refuse();
  }

  describe(): KubeAuthDescription {
    const { source, file } = this.identity;
    return {
      server: this.server,
      source,
      ...(file !== undefined && { file }),
      method: methodOf(this.identity),
    };
  }

  /** Takes changed files: all of them, or none. */
  async #update(): Promise<void> {
    const { file, ca, cert, key } = this.identity;
    const pems = [ca, cert, key].flatMap((pem) => pem && "file" in pem ? [pem.file] : []);
    const fingerprint = await fingerprintOf(file === undefined ? pems : [file, ...pems]);
    if (this.#tls !== undefined && fingerprint === this.#fingerprint) return;
    await this.#keepingFormer("files", this.#tls, async () => {
      // The constructor already has the current identity.
      const identity = this.#tls === undefined ? this.identity : await this.#readAgain();
      const tls = await readTls(identity);
      this.identity = identity;
      this.#fingerprint = fingerprint;
      if (!isSame(this.#tls, tls)) this.#tls = tls;
    });
  }

  /** Everything that is known comes from one server; another one may be another cluster. */
  async #readAgain(): Promise<KubeIdentity> {
    const identity = await this.readIdentity();
    this.#hasMoved = identity.server !== this.server;
    if (!this.#hasMoved) return identity;
    throw new KubeAuthError(
      `Cannot use the changed kubeconfig '${identity.file}': its server is '${identity.server}' ` +
        `now, and was '${this.server}'; restart kube-relay to connect to it`,
    );
  }

  /** Runs `read`; if it fails, logs a warning and keeps the former value. */
  async #keepingFormer(
    what: string,
    former: unknown,
    read: () => Promise<void>,
  ): Promise<void> {
    try {
      await read();
      this.#warnings.delete(what);
    } catch (error) {
      if (former === undefined || !(error instanceof Error)) throw error;
      if (this.#warnings.get(what) !== error.message) {
        this.logger.warn("Cannot reload credentials; the previous ones stay in use", {
          error: error.message,
        });
      }
      this.#warnings.set(what, error.message);
    }
  }
}

async function readTls(identity: KubeIdentity): Promise<TlsMaterial> {
  const [ca, cert, key] = await Promise.all([
    readPem(identity.ca, "CERTIFICATE"),
    readPem(identity.cert, "CERTIFICATE"),
    readPem(identity.key, "PRIVATE KEY"),
  ]);
  if (cert !== undefined && key !== undefined && !isPair(cert, key)) {
    throw new KubeAuthError(
      `Cannot use the client certificate: the key of ${
        placeOf(identity.key!)
      } does not belong to ` +
        `the certificate of ${placeOf(identity.cert!)}; replace one of the two`,
    );
  }
  return {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(identity.tlsServerName !== undefined && { serverName: identity.tlsServerName }),
    insecure: identity.insecure,
  };
}

function placeOf(source: PemSource): string {
  return "file" in source ? `'${source.file}'` : source.field;
}

/** Whether a key is that of a certificate; also `true` for what only TLS itself can read. */
export function isPair(cert: string, key: string): boolean {
  try {
    return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch {
    return true;
  }
}

/** Returns PEM text, or `undefined` without a source. Throws a {@linkcode KubeAuthError}. */
export async function readPem(
  source: PemSource | undefined,
  label: string,
): Promise<string | undefined> {
  if (!source) return undefined;
  const text = "file" in source ? await readText(source) : decodeBase64(source);
  // node:tls accepts text without any certificate, and connects without one.
  if (new RegExp(`-----BEGIN [A-Z ]*${label}-----`).test(text)) return text;
  const where = "file" in source ? `'${source.file}'` : "it";
  throw new KubeAuthError(`Cannot use ${source.field}: ${where} has no PEM block '${label}'`);
}

function decodeBase64({ field, base64 }: { field: string; base64: string }): string {
  try {
    return atob(base64.replace(/\s/g, ""));
  } catch {
    throw new KubeAuthError(`Cannot use ${field}: it has to be PEM text in base64`);
  }
}

async function readText({ field, file }: { field: string; file: string }): Promise<string> {
  try {
    return await readTextUpTo(file, LONGEST_FILE);
  } catch (cause) {
    const reason = messageOf(cause);
    throw new KubeAuthError(`Cannot read ${field}: '${file}': ${reason}`, { cause });
  }
}

/** Changes when a file is replaced or written. */
async function fingerprintOf(files: readonly string[]): Promise<string> {
  const marks = await Promise.all(files.map(async (file) => {
    try {
      const { mtime, size, ino } = await Deno.stat(file);
      return `${mtime?.getTime()}/${size}/${ino}`;
    } catch {
      return "gone";
    }
  }));
  // Never empty: that means "read again".
  return `files ${marks.join(" ")}`;
}

function isSame(a: TlsMaterial | undefined, b: TlsMaterial): boolean {
  return a !== undefined && a.ca === b.ca && a.cert === b.cert && a.key === b.key &&
    a.serverName === b.serverName && a.insecure === b.insecure;
}

function methodOf(identity: KubeIdentity): string {
  if (new URL(identity.server).protocol === "http:") return "none (http)";
  if (identity.plugin) return `credential plugin '${identity.plugin.name}'`;
  if (identity.tokenFile) return "token file";
  if (identity.authorization?.startsWith("Basic ")) return "user name and password";
  if (identity.authorization) return "token";
  return identity.cert ? "client certificate" : "none";
}
