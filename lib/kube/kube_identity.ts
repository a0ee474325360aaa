/**
 * The content of a kubeconfig or a pod's service account, before its files are read.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { KubeAuthDescription } from "./kube_auth.ts";

/** PEM text, or its path; `field` is its name in messages. */
export type PemSource =
  | { readonly field: string; readonly file: string }
  | { readonly field: string; readonly base64: string };

/** Credentials from a plugin. */
export interface PluginCredentials {
  readonly authorization?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Server, trust and credentials. */
export interface KubeIdentity {
  readonly server: string;
  readonly source: KubeAuthDescription["source"];
  /** The kubeconfig itself. */
  readonly file?: string;
  readonly ca?: PemSource;
  readonly cert?: PemSource;
  readonly key?: PemSource;
  readonly tlsServerName?: string;
  readonly insecure: boolean;
  /** A constant value of the `Authorization` header. */
  readonly authorization?: string;
  /** The file of a bearer token, which is replaced from time to time. */
  readonly tokenFile?: { readonly field: string; readonly file: string };
  readonly plugin?: CredentialPlugin;
}

/** A program that gives credentials. */
export interface CredentialPlugin {
  readonly name: string;
  /** Returns the credentials, which are kept until they end or are refused. */
  ask(): Promise<PluginCredentials>;
  /** Records that the API server refused the last credentials. */
  refuse(): void;
}

/** Credentials that are not available now. They may be later: files appear, plugins recover. */
export class KubeAuthError extends Error {
  override name = "KubeAuthError";
}

const OTHERS_READ = 0o004;
const OTHERS_WRITE = 0o002;

/**
 * Warns of a kubeconfig, key or token that every user can read or write. The kubelet is responsible
 * for a pod's own files.
 */
export async function warnOfOpenFiles(identity: KubeIdentity, logger: Logger): Promise<void> {
  if (identity.source === "in-cluster account") return;
  const { file, key, tokenFile } = identity;
  for (const path of [file, key && "file" in key ? key.file : undefined, tokenFile?.file]) {
    if (path === undefined) continue;
    const mode = (await Deno.stat(path)).mode ?? 0;
    const verbs = [
      ...(mode & OTHERS_READ ? ["read"] : []),
      ...(mode & OTHERS_WRITE ? ["write"] : []),
    ];
    if (verbs.length === 0) continue;
    logger.warn("File with credentials is open to every user of this machine", {
      file: path,
      othersMay: verbs.join(" and "),
      cure: `chmod 600 ${path}`,
    });
  }
}
