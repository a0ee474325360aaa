/**
 * The content of a kubeconfig or a pod's service account, before its files are read.
 *
 * @module
 */
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
