/**
 * Runs for hours with an API server that fails again and again. The data plane must match the
 * objects at the end, and must never change without a change of an object.
 *
 * All parts from the connection to the plan are real; the data plane is a fake that counts.
 *
 * @module
 */
import { InformerSet } from "../../lib/kube/informer_set.ts";
import { assert, assertEquals } from "@std/assert";
import { ControllerOpener } from "../../lib/app/run/run_proxy.ts";
import { followedKinds } from "../../lib/app/service/service_subscriptions.ts";
import { HostRegistry } from "../../lib/app/service/host_registry.ts";
import { followServices, ServiceFamily, Services } from "../../lib/app/service/services.ts";
import { planSettingsOf } from "../../lib/app/run/plan_settings.ts";
import { defaultConfiguration } from "../../lib/config/configuration.ts";
import { ApiSource } from "../../lib/kube/api_source.ts";
import type { TransportTiming } from "../../lib/kube/api_transport.ts";
import type { KubeAuth } from "../../lib/kube/kube_auth.ts";
import type { ReflectorTiming } from "../../lib/kube/reflector.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { FakeBackend } from "../support/fakes/fake_backend.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import type { RawObject } from "./server.ts";
import { testNode, withLabels } from "./test_objects.ts";

const NODE = "node-1";
const NAMES = Array.from({ length: 12 }, (_, index) => `svc-${index}`);
const ZONE = "topology.kubernetes.io/zone";

/** Writes objects to an API server. */
export interface ObjectWriter {
  create(object: RawObject): Promise<RawObject>;
  update(object: RawObject): Promise<RawObject>;
  delete(object: RawObject): Promise<void>;
}

/** The options of the client under test. */
export interface LongRunOptions {
  readonly clock: Clock;
  readonly auth: KubeAuth;
  readonly timing?: TransportTiming & ReflectorTiming;
  readonly streamingLists?: boolean;
}

/** A node's proxy with a data plane that counts. */
export class LongRunProxy implements AsyncDisposable {
  readonly backend = new FakeBackend();
  readonly logger = new MemoryLogger();
  readonly #family: ServiceFamily;
  readonly #source: ApiSource;
  readonly #opener: ControllerOpener;
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;

  constructor({ clock, auth, ...options }: LongRunOptions) {
    const { logger, backend } = this;
    const settings = planSettingsOf(
      { ...defaultConfiguration(), bindAddress: "0.0.0.0" },
      { nodeName: NODE, mode: "userspace" },
    );
    const services = new Services({ clock }, "IPv4", settings);
    this.#family = new ServiceFamily(
      { clock, logger, backend, metrics: SILENT_METRICS, serviceListeners: [], listeners: [] },
      services,
      { minPeriodMs: 100, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    );
    const informers = new InformerSet();
    followServices(informers, { nodeName: NODE, endpointsFallback: false }, [services], {
      serviceCidrs: [],
      hosts: new HostRegistry(() => {}),
      hasAllNodes: false,
      onNode: (node) => services.onNode(settings.nodeState(node)),
    });
    const controller = { kinds: followedKinds("userspace"), open: () => this.#family.open() };
    this.#opener = new ControllerOpener(clock, informers, [controller], {
      ...{ onObject() {}, onAllOpen() {} },
    });
    this.#opener.allow();
    this.#source = new ApiSource({ clock, logger, auth, random: Math.random }, {
      informers,
      ...options,
    });
    this.#running = this.#family.start().then(() => this.#source.run(this.#abort.signal));
  }

  /** Returns the state of the data plane, as `service: address of the cluster IP -> endpoints`. */
  held(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      [...this.backend.held.values()].map(({ name, clusterIp, endpoints }) => [
        name.name,
        `${clusterIp} -> ${endpoints.map(({ address }) => address).join(" ")}`,
      ]).sort(),
    );
  }

  /** Returns the client's status, for the message of a failure. */
  sourceStatus(): unknown {
    return this.#source.status();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#opener.stop();
    this.#abort.abort();
    await this.#running;
    await this.#family.loop.stop();
  }
}

const SILENT_METRICS: ConstructorParameters<typeof ServiceFamily>[0]["metrics"] = new Proxy(
  Object.create(null),
  { get: () => () => {} },
);

/** A cluster that a test changes at random, with a record of the changes. */
export class RandomCluster {
  readonly #server: ObjectWriter;
  readonly #random: () => number;
  readonly #addresses = new Map<string, string>();
  readonly #endpoints = new Map<string, readonly string[]>();
  /** Changes of objects of each Service, and of objects on which all of them depend. */
  readonly #changes = new Map<string, number>();
  #zones = 0;
  #zone: string | undefined;
  #hasNode = false;

  constructor(server: ObjectWriter, random: () => number) {
    this.#server = server;
    this.#random = random;
  }

  /** Makes the Node and some Services. */
  async fill(): Promise<void> {
    await this.#toggleNode();
    for (const name of NAMES.slice(0, 8)) await this.#createService(name);
  }

  /** Changes one object. */
  async change(): Promise<void> {
    const name = NAMES[Math.floor(this.#random() * NAMES.length)]!;
    const choice = this.#random();
    if (choice < 0.05) return await this.#toggleNode();
    if (choice < 0.15) return await this.#changeNode();
    if (!this.#addresses.has(name)) return await this.#createService(name);
    if (choice < 0.3) return await this.#deleteService(name);
    if (choice < 0.5) return await this.#moveService(name);
    await this.#changeEndpoints(name);
  }

  /** Returns the expected state of the data plane, in the form of {@linkcode LongRunProxy.held}. */
  wanted(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      [...this.#addresses].map(([name, address]) => [
        name,
        `${address} -> ${(this.#endpoints.get(name) ?? []).toSorted().join(" ")}`,
      ]).sort(),
    );
  }

  /** Fails where the data plane was changed more often than objects were. */
  assertNoneWithoutCause({ syncs }: FakeBackend): void {
    const applied = new Map<string, number>();
    let everything = 0;
    for (const { upserted, removed, everything: all } of syncs) {
      if (all) everything++;
      if (all) continue;
      for (const key of new Set([...upserted, ...removed])) {
        const name = key.split("/")[1]!;
        applied.set(name, (applied.get(name) ?? 0) + 1);
      }
    }
    // The first sync, and one for each change of the zone.
    assert(everything <= 1 + this.#zones, `${everything} full syncs, ${this.#zones} zones`);
    for (const [name, count] of applied) {
      const caused = this.#changes.get(name) ?? 0;
      assert(count <= caused, `${name} was changed ${count} times for ${caused} object changes`);
    }
  }

  async #createService(name: string): Promise<void> {
    this.#note(name, 2);
    await this.#server.create(this.#service(name));
    await this.#server.create(this.#slice(name));
  }

  async #deleteService(name: string): Promise<void> {
    this.#note(name, 2);
    await this.#server.delete(this.#service(name));
    await this.#server.delete(this.#slice(name));
    this.#addresses.delete(name);
    this.#endpoints.delete(name);
  }

  /** As when an administrator replaces a Service: its address cannot be changed in place. */
  async #moveService(name: string): Promise<void> {
    this.#note(name, 2);
    await this.#server.delete(this.#service(name));
    this.#addresses.delete(name);
    await this.#server.create(this.#service(name));
  }

  async #changeEndpoints(name: string): Promise<void> {
    this.#note(name, 1);
    await this.#server.update(this.#slice(name, true));
  }

  /** A label that counts, and a taint that does not. */
  async #changeNode(): Promise<void> {
    if (!this.#hasNode) return await this.#toggleNode();
    const zone = this.#random() < 0.5 ? "zone-a" : "zone-b";
    if (this.#random() < 0.5) {
      if (zone !== this.#zone) this.#zones++;
      this.#zone = zone;
    }
    const tainted = this.#random() < 0.5;
    await this.#server.update(this.#node(tainted ? [{ key: "busy", effect: "NoSchedule" }] : []));
  }

  async #toggleNode(): Promise<void> {
    if (this.#hasNode) await this.#server.delete(this.#node([]));
    else await this.#server.create(this.#node([]));
    this.#hasNode = !this.#hasNode;
    // A Node that comes may bring a label and an address.
    this.#zones++;
  }

  #node(taints: readonly unknown[]): RawObject {
    const labels: Record<string, string> = this.#zone === undefined ? {} : { [ZONE]: this.#zone };
    return { ...withLabels(testNode(NODE), labels), spec: { taints } };
  }

  #service(name: string): RawObject {
    let address = this.#addresses.get(name);
    if (address === undefined) {
      address = `10.0.${this.#number(250)}.${1 + this.#number(250)}`;
      this.#addresses.set(name, address);
    }
    return {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace: "default" },
      spec: { type: "ClusterIP", clusterIP: address, ports: [{ protocol: "TCP", port: 80 }] },
    };
  }

  #slice(name: string, recreated = !this.#endpoints.has(name)): RawObject {
    if (recreated) {
      const first = this.#number(200);
      const count = this.#number(4);
      const addresses = Array.from({ length: count }, (_, index) => `10.1.0.${first + index}`);
      this.#endpoints.set(name, addresses);
    }
    return {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        name,
        namespace: "default",
        labels: { "kubernetes.io/service-name": name },
      },
      addressType: "IPv4",
      endpoints: this.#endpoints.get(name)!.map((address) => ({ addresses: [address] })),
      ports: [{ name: "", protocol: "TCP", port: 8080 }],
    };
  }

  #number(below: number): number {
    return Math.floor(this.#random() * below);
  }

  #note(name: string, objects: number): void {
    this.#changes.set(name, (this.#changes.get(name) ?? 0) + objects);
  }
}

/** Fails with both states if the data plane does not match the objects. */
export function assertHolds(proxy: LongRunProxy, cluster: RandomCluster, seed: number): void {
  const state = JSON.stringify(proxy.sourceStatus());
  assertEquals(
    proxy.held(),
    cluster.wanted(),
    `KUBE_RELAY_SEED=${seed} repeats this; the source: ${state}`,
  );
}

/** Whether the data plane matches the objects. */
export function holds(proxy: LongRunProxy, cluster: RandomCluster): boolean {
  return JSON.stringify(proxy.held()) === JSON.stringify(cluster.wanted());
}
