/**
 * What a kubeconfig or a pod's service account says, before any of its files is read.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { KubeAuthDescription } from "./kube_auth.ts";

/** PEM text, or where it lies; `field` is how messages name it. */
export type PemSource =
  | { readonly field: string; readonly file: string }
  | { readonly field: string; readonly base64: string };

/** What a credential plugin gives. */
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
  /** A value of the `Authorization` header that never changes. */
  readonly authorization?: string;
  /** Holds a bearer token, and is replaced from time to time. */
  readonly tokenFile?: { readonly field: string; readonly file: string };
  /** Asks a credential plugin; it caches by itself until the credentials end. */
  readonly plugin?: { readonly name: string; readonly ask: () => Promise<PluginCredentials> };
}

/** Credentials that cannot be had now. They may be there later: files appear, plugins recover. */
export class KubeAuthError extends Error {
  override name = "KubeAuthError";
}

const OTHERS_READ = 0o004;
const OTHERS_WRITE = 0o002;

/** Looks at the kubeconfig, the key and the token; a pod's own files are the kubelet's business. */
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
