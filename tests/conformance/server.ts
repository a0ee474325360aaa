/**
 * The interface of an API server for the conformance suite. The fake of `tests/support` and the
 * real API machinery of `tests/apiserver` implement it, so that the suite finds every difference
 * between them.
 *
 * @module
 */

/** A certificate and its private key, both as PEM text. */
export interface PemPair {
  readonly cert: string;
  readonly key: string;
}

/** A whole Kubernetes object, as `kubectl get -o json` shows it. */
export interface RawObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly generation?: number;
  };
  readonly [field: string]: unknown;
}

/** The differences between servers. A case that needs a missing capability is skipped by name. */
export interface ServerCapabilities {
  /** `sendInitialEvents` is answered with a bookmark at the end (etcd 3.5 and later). */
  readonly streamingLists: boolean;
  /** `spec.clusterIP!=None` is a known field selector of Services (Kubernetes 1.31 and later). */
  readonly clusterIpSelector: boolean;
}

/** A running API server with a token file for authentication, which the suite may torment. */
export interface ConformanceServer extends AsyncDisposable {
  /** For the names of tests, e.g. `fake` or `k8s.io/apiserver v0.36.2`. */
  readonly name: string;
  readonly capabilities: ServerCapabilities;
  /** `https://127.0.0.1:PORT`. The same before and after {@linkcode restartApi}. */
  readonly url: string;
  /** The CA that signed the server's certificate, PEM. The certificate names 127.0.0.1. */
  readonly ca: string;
  /** The bearer token that is accepted now. */
  token(): string;
  /** Makes a new token and refuses the former one with 401 from now on. Resolves to the new one. */
  rotateToken(): Promise<string>;
  /** A client certificate that is accepted now, where the server takes them. */
  clientCertificate?(): PemPair;
  /** Makes a new client certificate; requests with the former one get 401 from now on. */
  rotateClientCertificate?(): Promise<PemPair>;

  /** Stores a new object; resolves to it as stored, with uid and resourceVersion. */
  create(object: RawObject): Promise<RawObject>;
  /** Replaces an object, whatever its version; resolves to it as stored. */
  update(object: RawObject): Promise<RawObject>;
  /** Deletes an object. Of `object`, only apiVersion, kind, namespace and name are read. */
  delete(object: RawObject): Promise<void>;

  /**
   * Forgets the history up to now: once resolved, a *new* watch from any version that existed
   * before is answered 410 or with an ERROR event 410. Open watches go on. (A real server also
   * has a watch cache that must have forgotten it: restart the API process if that is what it takes.)
   */
  compact(): Promise<void>;
  /** Ends the API server as kill -9 does: connections break, later ones are refused. */
  killApi(): Promise<void>;
  /** Starts it again at the same address with the same content; resolves once it answers `/readyz`. */
  restartApi(): Promise<void>;
  /** Ends etcd alone as kill -9 does, where there is one. */
  killEtcd?(): Promise<void>;
  /** Starts etcd again with the same content. */
  restartEtcd?(): Promise<void>;
}

/** Starts a server with no objects except its own (such as Service `default/kubernetes`). */
export type StartConformanceServer = () => Promise<ConformanceServer>;
