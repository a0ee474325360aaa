/**
 * Writes objects to an API server, for the changes that a test makes to the cluster, apart from the
 * client under test.
 */
import type { RawObject } from "../../conformance/server.ts";

/** The address and credentials of a server. */
export interface ApiWriterOptions {
  readonly url: string;
  /** The CA that is trusted, PEM; without one the usual roots are. */
  readonly ca?: string;
  /** Asked before each request, since tokens rotate. */
  readonly token?: () => string;
  /** Client certificate, in place of a token. */
  readonly certificate?: { readonly cert: string; readonly key: string };
}

/** The place of a kind's objects in the API. */
interface Collection {
  readonly plural: string;
  readonly namespaced: boolean;
}

const COLLECTIONS: Readonly<Record<string, Collection>> = {
  Service: { plural: "services", namespaced: true },
  Endpoints: { plural: "endpoints", namespaced: true },
  EndpointSlice: { plural: "endpointslices", namespaced: true },
  Event: { plural: "events", namespaced: true },
  Node: { plural: "nodes", namespaced: false },
  Namespace: { plural: "namespaces", namespaced: false },
  ServiceCIDR: { plural: "servicecidrs", namespaced: false },
  Pod: { plural: "pods", namespaced: true },
  NetworkPolicy: { plural: "networkpolicies", namespaced: true },
  ClusterNetworkPolicy: { plural: "clusternetworkpolicies", namespaced: false },
  CustomResourceDefinition: { plural: "customresourcedefinitions", namespaced: false },
  LoadBalancerPool: { plural: "loadbalancerpools", namespaced: false },
  BgpPeer: { plural: "bgppeers", namespaced: false },
};

/** Requests under way at once while many objects are written: more than the server's cores gain nothing. */
const CONCURRENCY = 32;

/** A client that creates, replaces and deletes objects. Throws with the server's words when refused. */
export class ApiWriter implements Disposable {
  readonly #http: Deno.HttpClient;

  constructor(private readonly options: ApiWriterOptions) {
    this.#http = Deno.createHttpClient({
      ...(options.ca === undefined ? {} : { caCerts: [options.ca] }),
      ...options.certificate,
      http2: true,
    });
  }

  create(object: RawObject): Promise<RawObject> {
    return this.#send("POST", collectionPath(object), object);
  }

  /** Creates many objects, several at a time. Resolves to how long it took, in milliseconds. */
  async createAll(objects: Iterable<RawObject>): Promise<number> {
    return await forAll(objects, (object) => this.create(object));
  }

  /** Replaces an object, whatever its version. */
  update(object: RawObject): Promise<RawObject> {
    const { resourceVersion: _, ...metadata } = object.metadata;
    return this.#send("PUT", objectPath(object), { ...object, metadata });
  }

  /** Replaces many objects, as {@linkcode createAll} creates them. */
  async updateAll(objects: Iterable<RawObject>): Promise<number> {
    return await forAll(objects, (object) => this.update(object));
  }

  async delete(object: RawObject): Promise<void> {
    await this.#send("DELETE", objectPath(object));
  }

  /** Posts an object to a path of the caller's. Resolves to the answer, whatever it is. */
  async post(path: string, object: unknown): Promise<{ status: number; body: string }> {
    const response = await this.#fetch("POST", path, object);
    return { status: response.status, body: await response.text() };
  }

  /** Whether the server says that it can serve. Never throws. */
  async ready(): Promise<boolean> {
    try {
      const response = await this.#fetch("GET", "/readyz");
      await response.body?.cancel();
      return response.ok;
    } catch {
      return false;
    }
  }

  [Symbol.dispose](): void {
    this.#http.close();
  }

  async #send(method: string, path: string, body?: unknown): Promise<RawObject> {
    const response = await this.#fetch(method, path, body);
    if (!response.ok) {
      throw new Error(`Cannot ${method} ${path}: ${response.status} ${await response.text()}`);
    }
    return await response.json() as RawObject;
  }

  #fetch(method: string, path: string, body?: unknown): Promise<Response> {
    const token = this.options.token?.();
    return fetch(this.options.url + path, {
      method,
      client: this.#http,
      headers: {
        "content-type": "application/json",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }
}

function collectionPath({ apiVersion, kind, metadata }: RawObject): string {
  const collection = COLLECTIONS[kind];
  if (!collection) throw new Error(`Cannot write a '${kind}': want ${Object.keys(COLLECTIONS)}`);
  const root = apiVersion.includes("/") ? "/apis" : "/api";
  const namespace = collection.namespaced ? `/namespaces/${metadata.namespace ?? "default"}` : "";
  return `${root}/${apiVersion}${namespace}/${collection.plural}`;
}

function objectPath(object: RawObject): string {
  return `${collectionPath(object)}/${object.metadata.name}`;
}

/** Writes several objects at a time. Resolves to how long it took, in milliseconds. */
async function forAll(
  objects: Iterable<RawObject>,
  write: (object: RawObject) => Promise<unknown>,
): Promise<number> {
  const start = performance.now();
  const left = objects[Symbol.iterator]();
  const worker = async () => {
    for (let next = left.next(); !next.done; next = left.next()) await write(next.value);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return performance.now() - start;
}
