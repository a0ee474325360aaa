/** Data planes of addresses and routes that remember what they hold, and fail on demand. */
import type {
  BgpBackend,
  BgpSessionView,
  Layer2Backend,
  PodNetworkBackend,
  RoutingBackends,
} from "../../../lib/app/routing/routing_backends.ts";
import type { CleanupReport, SyncReport } from "../../../lib/engine/data_plane.ts";
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import type { PodNetworkPlan } from "../../../lib/routing/pod_network_plan.ts";
import type { NodeLink } from "../../../lib/routing/layer2_member.ts";

const NOTHING: CleanupReport = { removed: [], failed: [] };

/** Holds the addresses that it is given. */
export class FakeLayer2Backend implements Layer2Backend {
  readonly addresses = new Set<IpAddress>();
  /** Those of the last sync. */
  interfaces: readonly string[] = [];
  readonly failures: Error[] = [];
  /** Addresses for which another machine answers. */
  conflicts: readonly IpAddress[] = [];
  /** The number of searches for them. */
  searches = 0;

  constructor(readonly family: IpFamily, readonly calls: string[]) {}

  sync(
    wanted: ReadonlySet<IpAddress>,
    interfaces: readonly string[],
  ): Promise<SyncReport<IpAddress>> {
    this.interfaces = interfaces;
    const failure = this.failures.shift();
    if (failure) return Promise.reject(failure);
    let changed = 0;
    for (const address of wanted.symmetricDifference(this.addresses)) {
      changed++;
      const isAdded = wanted.has(address);
      this.calls.push(`${isAdded ? "add" : "remove"} ${address}`);
      if (isAdded) this.addresses.add(address);
      else this.addresses.delete(address);
    }
    const operations: Record<string, number> = changed > 0 ? { changed } : {};
    return Promise.resolve({ full: false, operations, quarantined: [] });
  }

  /** The networks of the node. */
  network: readonly NodeLink[] = [{ network: "0.0.0.0/0" as Cidr, device: "eth0" }];

  links(): Promise<readonly NodeLink[]> {
    return Promise.resolve(this.network);
  }

  inspect(): ReturnType<Layer2Backend["inspect"]> {
    const held = [...this.addresses].map((address) => ({ address, device: "eth0" }));
    return { held, announcing: undefined };
  }

  /** The errors of the next searches. */
  readonly searchFailures: Error[] = [];

  findConflicts(): Promise<ReadonlyMap<IpAddress, string | undefined>> {
    this.searches++;
    const failure = this.searchFailures.shift();
    if (failure) return Promise.reject(failure);
    const found = [...this.addresses].map((each) =>
      [each, this.conflicts.includes(each) ? "02:00:00:00:00:07" : undefined] as const
    );
    return Promise.resolve(new Map(found));
  }

  recheck(): void {}
  cleanup = () => Promise.resolve({ ...NOTHING, removed: [`addresses of ${this.family}`] });
  [Symbol.asyncDispose] = () => Promise.resolve();
}

/** Remembers the plan. */
export class FakeBgpBackend implements BgpBackend {
  plan: BgpPlan | undefined;
  syncs = 0;
  /** The peers of each plan. */
  readonly peers: (readonly string[])[] = [];
  readonly failures: Error[] = [];
  /** The promise that a sync waits for. */
  hanging: Promise<void> = Promise.resolve();

  constructor(readonly calls: string[]) {}

  get announced(): readonly string[] {
    return this.plan?.announced.map(({ prefix }) => prefix) ?? [];
  }

  async sync(plan: BgpPlan): Promise<SyncReport<string>> {
    this.syncs++;
    await this.hanging;
    const failure = this.failures.shift();
    if (failure) throw failure;
    const isChanged = plan !== this.plan;
    this.plan = plan;
    if (isChanged) this.peers.push(plan.peers.map(({ name }) => name));
    if (isChanged) this.calls.push(`announce ${this.announced.join(" ") || "nothing"}`);
    const operations: Record<string, number> = isChanged ? { configured: 1 } : {};
    return { full: true, operations, quarantined: [] };
  }

  render = () => ["# bgp\n"];
  compare = () => Promise.resolve([]);
  sentPrefixes = () => Promise.resolve(new Map());
  watch = () => Promise.resolve();

  sessions({ peers }: BgpPlan): Promise<readonly BgpSessionView[]> {
    return Promise.resolve(
      peers.map(({ name }) => ({
        ...{ peer: name, state: "Established", description: "established" },
        ...{ imported: 0, exported: this.plan?.announced.length ?? 0, refusedUpdates: 0 },
      })),
    );
  }

  cleanup = () => Promise.resolve({ ...NOTHING, removed: ["files of BIRD"] });
  [Symbol.asyncDispose] = () => Promise.resolve();
}

/** Remembers the plan of the network of pods. */
export class FakePodNetworkBackend implements PodNetworkBackend {
  plan: PodNetworkPlan | undefined;
  /** How often everything was removed. */
  cleanups = 0;
  /** Why the next removals fail, one each: in part, or altogether. */
  readonly failures: (string | Error)[] = [];
  /** Syncs so far. */
  syncs = 0;
  /** Reports that a link changed. */
  linkChanged: () => void = () => {};

  sync(plan: PodNetworkPlan): Promise<SyncReport<string>> {
    this.plan = plan;
    this.syncs++;
    const quarantined = plan.problems.map(({ node, reason }) => ({ key: `Node ${node}`, reason }));
    return Promise.resolve({ full: true, operations: {}, quarantined });
  }

  watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    this.linkChanged = onChange;
    return new Promise((resolve) =>
      signal.addEventListener("abort", () => resolve(), { once: true })
    );
  }

  render = () => ["# pod network\n"];
  compare = () => Promise.resolve([]);
  cleanup(): Promise<CleanupReport> {
    this.cleanups++;
    const failure = this.failures.shift();
    if (failure === undefined) return Promise.resolve({ ...NOTHING, removed: ["routes to pods"] });
    if (failure instanceof Error) return Promise.reject(failure);
    return Promise.resolve({ ...NOTHING, failed: [failure] });
  }
  [Symbol.asyncDispose] = () => Promise.resolve();
}

/** The fakes that a run has made. */
export class FakeRoutingBackends implements RoutingBackends {
  readonly calls: string[] = [];
  readonly planes = new Map<IpFamily, FakeLayer2Backend>();
  readonly daemon = new FakeBgpBackend(this.calls);
  readonly pods = new FakePodNetworkBackend();

  layer2(_: unknown, { family }: { readonly family: IpFamily }): FakeLayer2Backend {
    const plane = new FakeLayer2Backend(family, this.calls);
    this.planes.set(family, plane);
    return plane;
  }

  bgp(): FakeBgpBackend {
    return this.daemon;
  }

  podNetwork(): FakePodNetworkBackend {
    return this.pods;
  }

  /** The addresses of layer 2, sorted. */
  get held(): readonly string[] {
    return [...this.planes.values()].flatMap(({ addresses }) => [...addresses]).sort();
  }
}
