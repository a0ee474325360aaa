/**
 * The part of the suite that fits any cluster: it writes only into its own namespace, lets the
 * server choose addresses, and harms no other user.
 */
import { assert, assertEquals } from "@std/assert";
import type { KubeAuth } from "../../lib/kube/kube_auth.ts";
import { ApiWriter } from "../support/drivers/api_writer.ts";
import { eventually } from "../support/eventually.ts";
import { Follower } from "./follower.ts";
import type { RawObject } from "./server.ts";
import { testEndpointSlice } from "./test_objects.ts";

/** The time limit for one change in a cluster that the user provides. */
const DEADLINE = { deadlineMs: 60_000 };

/** A cluster and what ends the use of it. */
export interface Cluster extends AsyncDisposable {
  readonly auth: KubeAuth;
}

/** Defines the tests. Services have no selector, so that no controller makes EndpointSlices for them. */
export function defineClusterTests(name: string, connect: () => Promise<Cluster>): void {
  for (const streamingLists of [true, false]) {
    const way = streamingLists ? "a streaming list" : "lists in pages";
    Deno.test(`ApiSource follows the life of a Service by ${way} (${name})`, async () => {
      await using cluster = await connect();
      using admin = await writerOf(cluster.auth);
      await using namespace = await TestNamespace.create(admin);
      await admin.create(namespace.service("before"));
      await using follower = new Follower({ auth: cluster.auth, streamingLists });
      await follower.synced(DEADLINE);
      assert(follower.informers.services.get(namespace.key("before")));
      await followLife({ admin, namespace, follower });
    });
  }
}

async function followLife(
  { admin, namespace, follower }: {
    readonly admin: ApiWriter;
    readonly namespace: TestNamespace;
    readonly follower: Follower;
  },
): Promise<void> {
  const key = namespace.key("web");
  const { services, endpointSlices } = follower.informers;
  const eventsBefore = follower.events.length;
  const created = await admin.create(namespace.service("web"));
  await eventually("the Service is there", () => services.get(key) !== undefined, DEADLINE);
  await admin.create(namespace.slice("web-1"));
  const sliceKey = namespace.key("web-1");
  await eventually("its slice is there", () => endpointSlices.get(sliceKey), DEADLINE);
  // As stored: a cluster gives addresses that may not change any more.
  await admin.update({
    ...created,
    spec: { ...Object(created.spec), sessionAffinity: "ClientIP" },
  });
  await eventually(
    "it has changed",
    () => services.get(key)?.spec.sessionAffinity === "ClientIP",
    DEADLINE,
  );
  await admin.delete(created);
  await eventually("it is gone", () => services.get(key) === undefined, DEADLINE);
  const own = follower.events.slice(eventsBefore).filter((event) => event.endsWith(` ${key}`));
  assertEquals(own, [`add Service ${key}`, `update Service ${key}`, `delete Service ${key}`]);
}

/** A namespace that is deleted with everything in it. */
class TestNamespace implements AsyncDisposable {
  readonly #admin: ApiWriter;
  readonly #object: RawObject;

  private constructor(admin: ApiWriter, object: RawObject) {
    this.#admin = admin;
    this.#object = object;
  }

  static async create(admin: ApiWriter): Promise<TestNamespace> {
    const name = `kube-relay-conformance-${crypto.randomUUID().slice(0, 8)}`;
    const object = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
    await admin.create(object);
    return new TestNamespace(admin, object);
  }

  key(name: string): string {
    return `${this.#object.metadata.name}/${name}`;
  }

  service(name: string): RawObject {
    return {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace: this.#object.metadata.name },
      spec: { type: "ClusterIP", ports: [{ protocol: "TCP", port: 80 }] },
    };
  }

  slice(name: string): RawObject {
    const slice = testEndpointSlice(name);
    return { ...slice, metadata: { ...slice.metadata, namespace: this.#object.metadata.name } };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#admin.delete(this.#object);
  }
}

async function writerOf(auth: KubeAuth): Promise<ApiWriter> {
  const { ca, cert, key } = await auth.tls();
  const token = (await auth.authorization())?.replace(/^Bearer /, "");
  return new ApiWriter({
    url: auth.server,
    ...(ca !== undefined && { ca }),
    ...(token !== undefined && { token: () => token }),
    ...(cert !== undefined && key !== undefined && { certificate: { cert, key } }),
  });
}
