import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import type { KubeAuth, KubeAuthDescription, TlsMaterial } from "./kube_auth.ts";
import { KubeAuthError, type KubeIdentity, type PemSource } from "./kube_identity.ts";

/** Dependencies of {@linkcode IdentityAuth}. */
interface IdentityAuthDependencies {
  readonly logger: Logger;
  /** Reads the identity; called again when its file changed, and after a 401. */
  readonly readIdentity: () => Promise<KubeIdentity>;
}

/** The size of a bundle of several hundred certificates. */
const LONGEST_FILE = 1024 * 1024;

/** A {@linkcode KubeAuth} on files and plugins, which are read again when they change. */
export class IdentityAuth implements KubeAuth {
  readonly server: string;
  readonly #logger: Logger;
  readonly #readIdentity: () => Promise<KubeIdentity>;
  #identity: KubeIdentity;
  #tls: TlsMaterial | undefined;
  /** State of the files at the last read. */
  #fingerprint = "";
  #token: string | undefined;
  /** The last warning for each unreadable file. */
  readonly #warnings = new Map<string, string>();

  /** `identity` is the first result of `readIdentity`. */
  constructor(dependencies: IdentityAuthDependencies, identity: KubeIdentity) {
    this.server = identity.server;
    this.#logger = dependencies.logger;
    this.#readIdentity = dependencies.readIdentity;
    this.#identity = identity;
  }

  async tls(): Promise<TlsMaterial> {
    const fingerprint = await fingerprintOf(this.#files());
    if (this.#tls === undefined || fingerprint !== this.#fingerprint) {
      await this.#keepingFormer({ what: "tls", former: this.#tls }, async () => {
        // The constructor already has the current identity.
        if (this.#tls !== undefined) this.#identity = await this.#readIdentity();
        const tls = await readTls(this.#identity);
        this.#fingerprint = fingerprint;
        if (!isSame(this.#tls, tls)) this.#tls = tls;
      });
    }
    return await this.#withPluginCertificate(this.#tls!);
  }

  async authorization(): Promise<string | undefined> {
    const { server, tokenFile, plugin, authorization } = this.#identity;
    // A secret over plain text is not a secret.
    if (new URL(server).protocol === "http:") return undefined;
    if (plugin) return (await plugin.ask()).authorization;
    if (!tokenFile) return authorization;
    await this.#keepingFormer({ what: "token", former: this.#token }, async () => {
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
    const keep = { what: "identity", former: this.#identity };
    const identity = await this.#keepingFormer(keep, this.#readIdentity);
    if (identity) this.#identity = identity;
  }

  describe(): KubeAuthDescription {
    const { source, file } = this.#identity;
    return {
      server: this.server,
      source,
      ...(file !== undefined && { file }),
      method: methodOf(this.#identity),
    };
  }

  /** Runs `read`; if it fails, logs a warning and keeps the former value. */
  async #keepingFormer<T>(
    { what, former }: { readonly what: string; readonly former: unknown },
    read: () => Promise<T>,
  ): Promise<T | undefined> {
    try {
      const value = await read();
      this.#warnings.delete(what);
      return value;
    } catch (error) {
      if (former === undefined || !(error instanceof Error)) throw error;
      if (this.#warnings.get(what) !== error.message) {
        this.#logger.warn("Cannot reload credentials; the previous ones stay in use", {
          error: error.message,
        });
      }
      this.#warnings.set(what, error.message);
      return undefined;
    }
  }

  async #withPluginCertificate(tls: TlsMaterial): Promise<TlsMaterial> {
    if (!this.#identity.plugin) return tls;
    const { cert, key } = await this.#identity.plugin.ask();
    if (cert === undefined || key === undefined) return tls;
    // The same object while nothing changed, because another object means a new connection.
    if (tls.cert !== cert || tls.key !== key) this.#tls = { ...tls, cert, key };
    return this.#tls!;
  }

  #files(): string[] {
    const { file, ca, cert, key } = this.#identity;
    const pems = [ca, cert, key].flatMap((pem) => pem && "file" in pem ? [pem.file] : []);
    return file === undefined ? pems : [file, ...pems];
  }
}

async function readTls(identity: KubeIdentity): Promise<TlsMaterial> {
  const [ca, cert, key] = await Promise.all([
    readPem(identity.ca, "CERTIFICATE"),
    readPem(identity.cert, "CERTIFICATE"),
    readPem(identity.key, "PRIVATE KEY"),
  ]);
  return {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(identity.tlsServerName !== undefined && { serverName: identity.tlsServerName }),
    insecure: identity.insecure,
  };
}

async function readPem(source: PemSource | undefined, label: string): Promise<string | undefined> {
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
