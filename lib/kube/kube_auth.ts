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
