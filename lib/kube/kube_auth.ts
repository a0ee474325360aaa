/**
 * Who we are and whom we trust: what a connection to the API server needs.
 *
 * @module
 */

/** What a TLS session needs; all of it PEM text. */
export interface TlsMaterial {
  /** The only CA that is trusted; without one the usual roots are. */
  readonly ca?: string;
  /** Client certificate. */
  readonly cert?: string;
  /** Its private key. */
  readonly key?: string;
  /** The name that the server's certificate must have, where it isn't the one in the address. */
  readonly serverName?: string;
  /** Takes any certificate of the server. */
  readonly insecure: boolean;
}

/** Where an identity came from. Nothing in it is secret. */
export interface KubeAuthDescription {
  readonly server: string;
  readonly source: "kubeconfig" | "in-cluster account" | "--master alone";
  /** The kubeconfig file. */
  readonly file?: string;
  /** How we say who we are, e.g. `client certificate`. */
  readonly method: string;
}

/** An identity towards one API server. Files behind it may be replaced at any time. */
export interface KubeAuth {
  /** URL of the server, which may have a path. */
  readonly server: string;
  /**
   * What the next TLS session needs. Files that changed are read again; the object stays the same
   * one for as long as nothing changed.
   */
  tls(): Promise<TlsMaterial>;
  /** The `Authorization` header of the next request. */
  authorization(): Promise<string | undefined>;
  /** After a 401: forgets everything that was cached, so that the next calls read and ask anew. */
  refresh(): Promise<void>;
  describe(): KubeAuthDescription;
}
