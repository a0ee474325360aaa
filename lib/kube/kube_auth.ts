/**
 * The credentials and trust of a connection to the API server.
 *
 * @module
 */

/** The certificates and keys of a TLS session; all of it PEM text. */
export interface TlsMaterial {
  /** The only trusted CA; absent = the usual roots. */
  readonly ca?: string;
  /** Client certificate. */
  readonly cert?: string;
  /** Its private key. */
  readonly key?: string;
  /** The expected name in the server's certificate, if it differs from the address. */
  readonly serverName?: string;
  /** Whether any certificate of the server is accepted. */
  readonly insecure: boolean;
}

/** The source of an identity, without secrets. */
export interface KubeAuthDescription {
  readonly server: string;
  readonly source: "kubeconfig" | "in-cluster account" | "--master alone";
  /** The kubeconfig file. */
  readonly file?: string;
  /** The method of authentication, e.g. `client certificate`. */
  readonly method: string;
}

/** Credentials that are not available now. They may be later: files appear, plugins recover. */
export class KubeAuthError extends Error {
  override name = "KubeAuthError";
}

/** An identity for one API server. Its files may be replaced at any time. */
export interface KubeAuth {
  /** URL of the server, which may have a path. */
  readonly server: string;
  /**
   * Returns the material for the next TLS session. Reads changed files again; returns the same
   * object while nothing changed.
   */
  tls(): Promise<TlsMaterial>;
  /** Returns the `Authorization` header of the next request. */
  authorization(): Promise<string | undefined>;
  /** After a 401: forgets all cached credentials, so that the next calls read and ask again. */
  refresh(): Promise<void>;
  describe(): KubeAuthDescription;
}

/** PEM text, or its path; `field` is its name in messages. */
export type PemSource =
  | { readonly field: string; readonly file: string }
  | { readonly field: string; readonly base64: string };

/** Server, trust and credentials. */
export interface KubeIdentity {
  readonly server: string;
  readonly source: KubeAuthDescription["source"];
  /** The kubeconfig itself. */
  readonly file?: string;
  /** The other file of a list, which has the cluster. */
  readonly clusterFile?: string;
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

/** Credentials of a plugin. */
export interface PluginCredentials {
  readonly authorization?: string;
  readonly cert?: string;
  readonly key?: string;
  /** End, in milliseconds since 1970; `undefined` = valid until refused. */
  readonly endsAt: number | undefined;
}

/** A program that gives credentials. */
export interface CredentialPlugin {
  readonly name: string;
  /** Returns the credentials, which are kept until they end or are refused. */
  ask(): Promise<PluginCredentials>;
  /** Records that the API server refused the last credentials. */
  refuse(): void;
}
