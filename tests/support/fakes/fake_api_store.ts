/** Stores the objects of a fake API server, their versions, and the history for watches. */
import type { RawObject } from "../../conformance/server.ts";

/** One collection of objects. */
export interface Collection {
  readonly kind: string;
  readonly apiVersion: string;
  /** Path of the collection, for all namespaces. */
  readonly path: string;
  readonly namespaced: boolean;
}

/** Every collection that the server knows. */
export const COLLECTIONS: readonly Collection[] = [
  collection("Service", "v1", "services", true),
  collection("Endpoints", "v1", "endpoints", true),
  collection("Event", "v1", "events", true),
  collection("Event", "events.k8s.io/v1", "events", true),
  collection("Node", "v1", "nodes", false),
  collection("EndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
  collection("Pod", "v1", "pods", true),
  collection("Namespace", "v1", "namespaces", false),
  collection("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies", true),
  collection(
    "ClusterNetworkPolicy",
    "policy.networking.k8s.io/v1alpha2",
    "clusternetworkpolicies",
    false,
  ),
  collection("Lease", "coordination.k8s.io/v1", "leases", true),
  collection("ServiceCIDR", "networking.k8s.io/v1", "servicecidrs", false),
  collection("LoadBalancerPool", "kube-relay.io/v1alpha1", "loadbalancerpools", false),
  collection("IPAddressPool", "metallb.io/v1beta1", "ipaddresspools", true),
  collection("AddressPool", "metallb.io/v1beta1", "addresspools", true),
  collection("BGPPeer", "metallb.io/v1beta2", "bgppeers", true),
  collection("BgpPeer", "kube-relay.io/v1alpha1", "bgppeers", false),
];

function collection(
  kind: string,
  apiVersion: string,
  plural: string,
  namespaced: boolean,
): Collection {
  const root = apiVersion.includes("/") ? "/apis" : "/api";
  return { kind, apiVersion, path: `${root}/${apiVersion}/${plural}`, namespaced };
}

/** One change. */
export interface StoredChange {
  readonly collection: Collection;
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly version: number;
  /** As stored; for a deletion the last state with the version of the deletion. */
  readonly object: RawObject;
  readonly previous: RawObject | undefined;
}

/** Thrown if a change is refused; carries the HTTP status. */
export class FakeStoreError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string | undefined,
    message: string,
    readonly retryAfterSeconds?: number,
  ) {
    super(message);
  }
}

/** Objects and history. Versions count all changes together, as etcd's do. */
export class FakeApiStore {
  readonly #objects = new Map<Collection, Map<string, RawObject>>();
  #history: StoredChange[] = [];
  #version = 1000;
  #compactedTo = 0;
  readonly #listeners = new Set<(change: StoredChange) => void>();

  /** Version of the last change. */
  get version(): number {
    return this.#version;
  }

  /** Watches from an earlier version than this get 410. */
  get compactedTo(): number {
    return this.#compactedTo;
  }

  /** Objects of a collection, in the order of their keys. */
  list(collection: Collection): RawObject[] {
    return [...this.#of(collection)].sort(([a], [b]) => a < b ? -1 : 1).map(([, object]) => object);
  }

  get(collection: Collection, key: string): RawObject | undefined {
    return this.#of(collection).get(key);
  }

  /** Changes of a collection after a version. */
  since(collection: Collection, version: number): StoredChange[] {
    return this.#history.filter((change) =>
      change.collection === collection && change.version > version
    );
  }

  create(object: RawObject): RawObject {
    const collection = collectionOf(object);
    const key = keyOf(object);
    if (this.#of(collection).has(key)) {
      throw new FakeStoreError(409, "AlreadyExists", `${collection.kind} "${key}" already exists`);
    }
    // Unlike the API server it leaves a creation time as it is given: tests say how old a Service is.
    const metadata = {
      creationTimestamp: "2026-01-01T00:00:00Z",
      ...object.metadata,
      uid: crypto.randomUUID(),
    };
    return this.#write("ADDED", { ...object, metadata });
  }

  update(object: RawObject): RawObject {
    const { uid } = this.#existing(object).metadata;
    return this.#write("MODIFIED", { ...object, metadata: { ...object.metadata, uid: uid! } });
  }

  delete(object: RawObject): RawObject {
    return this.#write("DELETED", this.#existing(object));
  }

  /** Forgets the history up to now. */
  compact(): void {
    this.#compactedTo = this.#version;
    this.#history = [];
  }

  /** Goes back in time, as after etcd was restored from a backup: later versions are in the future. */
  rollBackVersionTo(version: number): void {
    this.#version = version;
    this.#history = [];
    this.#compactedTo = 0;
  }

  /** Calls back at each change, until the result is called. */
  listen(listener: (change: StoredChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #of(collection: Collection): Map<string, RawObject> {
    let objects = this.#objects.get(collection);
    if (!objects) this.#objects.set(collection, objects = new Map());
    return objects;
  }

  #existing(object: RawObject): RawObject {
    const collection = collectionOf(object);
    const found = this.#of(collection).get(keyOf(object));
    if (found) return found;
    const message = `${collection.kind} "${keyOf(object)}" not found`;
    throw new FakeStoreError(404, "NotFound", message);
  }

  #write(type: StoredChange["type"], object: RawObject): RawObject {
    const collection = collectionOf(object);
    const objects = this.#of(collection);
    const key = keyOf(object);
    const previous = objects.get(key);
    const version = ++this.#version;
    const stored: RawObject = {
      ...object,
      apiVersion: collection.apiVersion,
      kind: collection.kind,
      metadata: { ...object.metadata, resourceVersion: String(version) },
    };
    if (type === "DELETED") objects.delete(key);
    else objects.set(key, stored);
    const change = { collection, type, version, object: stored, previous };
    this.#history.push(change);
    for (const listener of [...this.#listeners]) listener(change);
    return stored;
  }
}

/** The collection of an object. Throws for a kind that the server doesn't know. */
export function collectionOf(
  { kind, apiVersion }: Pick<RawObject, "kind" | "apiVersion">,
): Collection {
  const found = COLLECTIONS.find((known) => known.kind === kind && known.apiVersion === apiVersion);
  if (!found) throw new RangeError(`Cannot store '${apiVersion} ${kind}': there is no such kind`);
  return found;
}

/** `namespace/name`, or the name alone for objects of the cluster. */
export function keyOf({ metadata: { namespace, name } }: RawObject): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
