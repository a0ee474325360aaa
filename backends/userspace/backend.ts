/**
 * The userspace mode: sockets on the addresses of Services, and a forwarder behind each.
 *
 * It needs neither root nor netfilter. What it costs: two sockets and two copies for each
 * connection, and the endpoint sees the client's address only in a PROXY protocol header (Deno can't
 * choose the source address of a connection, and IP_TRANSPARENT is out of reach).
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import type { Backend, ConnectionView } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import type { ConnectionJudge } from "../../lib/policy/connection_judge.ts";
import type { HostSettingRequest, SyncReport } from "../../lib/proxy/data_plane.ts";
import type {
  BackendInspection,
  EndpointHealthChange,
  ProbeResult,
  ServedAddress,
  ServiceInspection,
  ServiceMode,
} from "../../lib/proxy/service_mode.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import { contestedAddressesOf } from "../../lib/proxy/frontend.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic, TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import type { ServiceAddresses } from "./addresses/addresses.ts";
import { explainUserspace, renderForwardingTable } from "./explain.ts";
import { type Forwarders, LocalForwarders } from "./forwarders.ts";
import { Forwarding, type ForwardingDependencies, type ForwardingOptions } from "./forwarding.ts";
import { HealthMonitor } from "./health/health_monitor.ts";
import type { ServiceAddress } from "./listeners.ts";
import { MORE_ADDRESSES, type ServiceEntry, ServiceSockets } from "./service_sockets.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import type { Network } from "../../lib/os/network.ts";
import { shareRefusal } from "../../lib/os/shared_listener.ts";
import type { RelayWorkers } from "../../lib/os/worker_pool.ts";
import { WorkerForwarders } from "./workers/worker_forwarders.ts";

/** The edges of the userspace backend. */
interface UserspaceBackendDependencies extends ForwardingDependencies {
  readonly addresses: ServiceAddresses;
  readonly comparison: Pick<ServiceMode, "compare" | "repair">;
  /** Threads that forward. @default {this one does} */
  readonly workers?: RelayWorkers | undefined;
  /** Called when endpoints became unhealthy, were ejected, or returned. */
  readonly onHealth?: ((changes: readonly EndpointHealthChange[]) => void) | undefined;
}

/** Settings of the userspace backend. */
export interface UserspaceBackendOptions extends ForwardingOptions {
  readonly family: IpFamily;
}

/** A socket that is opened and closed again takes two. */
const MOST_ROUNDS = 8;

/** Forwards the connections of one IP family itself. Opens nothing before the first sync. */
export class UserspaceBackend implements Backend {
  readonly mode = "userspace";
  readonly usesConntrack = false;
  readonly takesPartialPlans = true;
  readonly family: IpFamily;
  readonly #comparison: UserspaceBackendDependencies["comparison"];
  readonly #forwarding: Forwarding;
  readonly #forwarders: Forwarders;
  readonly #health: HealthMonitor;
  readonly #network: Network;
  readonly #judge: ConnectionJudge | undefined;
  readonly #addresses: ServiceAddresses;
  readonly #sockets: ServiceSockets;
  /** Syncs and repairs: both write the addresses of `lo`. */
  readonly #turns = new OneAtATime();
  #nodePortAddresses: readonly IpAddress[] = [];
  #synced = false;
  /** Whether the last sync wrote a complete plan. */
  #isWritten = false;
  /** Whether the addresses left by an earlier run have been released. */
  #released = false;

  constructor(
    { addresses, comparison, onHealth, workers, ...dependencies }: UserspaceBackendDependencies,
    { family, ...options }: UserspaceBackendOptions,
  ) {
    this.family = family;
    this.#comparison = comparison;
    this.#forwarding = new Forwarding(dependencies, options);
    this.#forwarders = workers?.kind === "workers"
      ? new WorkerForwarders(this.#forwarding, workers, { family, ...options })
      : new LocalForwarders(this.#forwarding, workers?.note);
    this.#health = new HealthMonitor(
      this.#forwarding,
      (key, unhealthy) => this.#forwarders.apply({ op: "skip", key, unhealthy }),
      (changes) => onHealth?.(changes),
    );
    this.#forwarding.onOutcome = (outcome) => this.#health.observe(outcome);
    this.#network = dependencies.network;
    this.#judge = options.judge;
    this.#addresses = addresses;
    this.#sockets = new ServiceSockets(
      this.#forwarding,
      this.#forwarders,
      this.#addresses,
      this.#health,
    );
  }

  get connections(): ConnectionView {
    const { counters, watches } = this.#forwarding;
    return {
      ...{ counters, watches, health: this.#health.figures },
      refresh: () => this.#forwarders.refresh(),
    };
  }

  hostSettings(): readonly HostSettingRequest[] {
    return [];
  }

  async probe(): Promise<readonly ProbeResult[]> {
    return [...await this.#addresses.probe(), probeSharing(this.#network, this.family)];
  }

  async start(): Promise<void> {
    this.#followPolicies();
    await Promise.all([this.#addresses.start(), this.#forwarders.start()]);
  }

  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    return this.#turns.run(async () => {
      this.#isWritten = false;
      const report = await this.#sync(plan, changes);
      this.#isWritten = this.#released;
      return report;
    });
  }

  async #sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    const { clock, counters } = this.#forwarding;
    const shared = changes.shared || !this.#synced;
    const operations = this.#sockets.beginOperations();
    const movedBefore = counters.udpMoved;
    const keys = this.#affected(plan, changes, shared);
    const looked = await this.#sockets.update(plan, keys, changes.removed.keys());
    const acquiredAddresses = await this.#acquire(plan, keys);
    await this.#reconcile(plan);
    this.#sockets.closeUnwanted();
    // A socket is closed only when the accept that waits on it has been taken back. That takes a turn
    // of the timers; yieldToEventLoop() may end before.
    if (operations.closedSockets > 0) await clock.sleep(0);
    // Only data processes that are older than this process have anything that it does not name.
    if (!this.#released && !changes.isPartial) this.#forwarders.apply({ op: "release" });
    await this.#forwarders.settle();
    let releasedAddresses = await this.#addresses.giveBack();
    this.#synced = true;
    if (!this.#released && !changes.isPartial) {
      releasedAddresses += await this.#addresses.releaseUnclaimed();
      this.#released = true;
    }
    await this.#forwarders.refresh();
    const movedFlows = counters.udpMoved - movedBefore;
    return {
      full: changes.everything,
      services: looked + changes.removed.size,
      operations: withoutZeros({
        ...operations,
        ...{ acquiredAddresses, releasedAddresses, movedFlows },
      }),
      quarantined: [...this.#sockets.quarantine],
    };
  }

  explain: Backend["explain"] = (plan, explanation, hit) => {
    const { endpointLoops } = this.#forwarding;
    const { deviations, carriers: sockets } = explainUserspace(plan, explanation, hit);
    const service = explanation.service && plan.services.get(explanation.service.key);
    const ignored = service && this.#health.inspect(service.key)?.ignored;
    const carriers = ignored === undefined
      ? sockets
      : sockets.map(({ text, ...socket }) => ({ ...socket, text: `${text}, ${ignored}` }));
    if (!service || !deviations) return { carriers, ...(deviations && { deviations }) };
    const leftOut = new Map([
      ...this.#health.skipped(service.key),
      ...endpointLoops.find(service),
    ]);
    return { carriers, deviations: leftOut.size === 0 ? deviations : { ...deviations, leftOut } };
  };

  findAffinity: Backend["findAffinity"] = ({ key }, { from }) =>
    this.#forwarders.remembered(key, from.address);

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderForwardingTable(plan, keys);
  }

  /** The text is the same on every machine. */
  facts(): undefined {}

  compare: Backend["compare"] = (plan, scope) => this.#comparison.compare(plan, scope);

  /** The plan and the record are read in the turn, so that nothing returns that a sync has removed. */
  repair(plan: ProxyPlan): Promise<Readonly<Record<string, number>>> {
    return this.#turns.run(async () => this.#isWritten ? await this.#comparison.repair(plan) : {});
  }

  /** No other program can write to the state of this mode. */
  recheck(): void {}

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const services: ServiceInspection[] = [];
    await this.#forwarders.refresh();
    await forEachInSlices(this.#forwarding.clock, keys ?? this.#sockets.entries.keys(), (key) => {
      const entry = this.#sockets.entries.get(key);
      if (entry) services.push(this.#inspectService(key, entry));
    });
    const wanted = keys && new Set(keys);
    const quarantined = [...this.#sockets.quarantine].filter(({ key }) =>
      !wanted || wanted.has(key)
    );
    const summary = `${this.#addresses.summary}${this.#forwarders.summary}`;
    return { summary, services, quarantined };
  }

  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    return this.#addresses.disown(isForeign);
  }

  ownsAddress(address: IpAddress): boolean {
    return this.#addresses.owns(address);
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.#addresses.previewCleanup();
  }

  cleanup(): Promise<CleanupReport> {
    return this.#addresses.cleanup();
  }

  async drain(timeoutMs: number): Promise<void> {
    // UDP sockets stay for the replies of open flows; no new ones are taken.
    this.#sockets.close("TCP");
    await this.#forwarders.drain(timeoutMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#sockets.close();
    this.#health.close();
    await this.#forwarders.close();
  }

  #followPolicies(): void {
    if (this.#judge === undefined) return;
    this.#judge.relay = {
      serves: (address) => this.#addresses.placeOf(address) !== undefined,
      follow: (update) => this.#forwarders.follow(update),
      recheck: (addresses) => this.#forwarders.recheck(addresses),
    };
  }

  /** Makes addresses local. Returns how many of them can now be used that could not. */
  async #acquire(plan: ProxyPlan, keys: ReadonlySet<ServicePortKey>): Promise<number> {
    const { serviceCidrs } = plan.shared;
    const renew = await this.#addresses.configure(serviceCidrs, this.#addresses.size);
    if (renew) this.#sockets.touchAll();
    const gained = await this.#addresses.acquire();
    if (!this.#addresses.takeMoved()) return gained;
    await this.#sockets.move(plan, renew ? this.#sockets.entries.keys() : keys);
    return gained;
  }

  /**
   * Repeats until stable: opening sockets may reveal another listener, which changes what to open.
   */
  async #reconcile(plan: ProxyPlan): Promise<void> {
    const sockets = this.#sockets;
    for (let round = 0; round < MOST_ROUNDS; round++) {
      await forEachInSlices(
        this.#forwarding.clock,
        sockets.touched,
        (socket) => sockets.reconcile(socket),
      );
      const failures = await this.#forwarders.settle();
      sockets.fail(failures);
      const affected = await sockets.serveAffected(plan);
      if (affected === 0 && failures.length === 0) return;
    }
  }

  /** Returns the keys to check: changed ones, those to retry, and node ports if the node's addresses changed. */
  #affected(plan: ProxyPlan, changes: PlanChanges, shared: boolean): ReadonlySet<ServicePortKey> {
    if (!shared) {
      return changes.everything
        ? changes.upserted
        : this.#sockets.withoutWaiting(changes.upserted, plan);
    }
    const { interfaceAddresses, localTraffic } = plan.shared;
    this.#forwarders.apply({ op: "share", shared: { interfaceAddresses, localTraffic } });
    if (deepEqual(this.#nodePortAddresses, plan.shared.nodePortAddresses)) return changes.upserted;
    this.#nodePortAddresses = plan.shared.nodePortAddresses;
    const keys = new Set(changes.upserted);
    for (const [key, { plan: { nodePort } }] of this.#sockets.entries) {
      if (nodePort !== undefined && plan.services.has(key)) keys.add(key);
    }
    return keys;
  }

  #inspectService(key: ServicePortKey, entry: ServiceEntry): ServiceInspection {
    const { plan } = entry;
    const contested = contestedAddressesOf(plan, this.#nodePortAddresses).map((place) => ({
      ...place,
      protocol: plan.protocol,
      state: "quarantined" as const,
    }));
    const addresses = [
      ...entry.addresses.values().map((at) => this.#inspectAddress(entry, at)),
      ...contested,
    ];
    if (plan.protocol === "SCTP") return { key, addresses };
    const traffic = this.#forwarding.traffic?.get(entry.plan.name);
    const connections = this.#forwarders.connections(key);
    const health = this.#health.inspect(key);
    return {
      ...{ key, addresses, connections },
      ...(traffic && { traffic: seenOf(traffic) }),
      ...(health && { health }),
    };
  }

  #inspectAddress({ plan: { key, protocol } }: ServiceEntry, at: ServiceAddress): ServedAddress {
    const { role, address, port, socket } = at;
    const serving = this.#sockets.serving(socket, key);
    if (serving?.isStandIn) {
      const { address, port } = serving.place;
      return { role: "StandIn", address, port, protocol, state: "serving" };
    }
    const unavailable = this.#sockets.quarantine.has(key, socket) ||
      (at.open && this.#sockets.quarantine.has(key, MORE_ADDRESSES)) ||
      (role !== "NodePort" && this.#addresses.placeOf(address)?.kind === "unavailable");
    const state = serving ? "serving" : unavailable ? "quarantined" : "refusing";
    return { role, address, port, protocol, state };
  }
}

/** Workers share the sockets of TCP frontends. */
function probeSharing(network: Network, family: IpFamily): ProbeResult {
  const feature = "share listening sockets";
  const refusal = shareRefusal(network, family);
  return refusal === undefined
    ? { feature, available: true, required: false, detail: "SO_REUSEPORT works", family }
    : {
      ...{ feature, available: false, required: false, detail: refusal, family },
      cure: "allow SO_REUSEPORT in the security profile of the process",
      lost: "one thread forwards, whatever --userspace-workers says",
    };
}

/** The kernel handles packets, so they are not counted here. */
function seenOf(
  { bytesFromClients, bytesToClients, opened, open }: Readonly<ServiceTraffic>,
): TrafficFigures {
  return { bytesFromClients, bytesToClients, opened, open };
}

function withoutZeros(counts: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
}
