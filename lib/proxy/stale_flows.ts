/**
 * Finds the flows that connection tracking must delete. A tracked flow keeps its first endpoint,
 * before any rule, while the client keeps sending.
 *
 * Upstream (1.36) checks only Services that have endpoints. kube-relay also ends flows to Services
 * without endpoints, to deleted Services, and to addresses and ports that were given up (kubernetes
 * issue 139628). It keeps flows whose endpoint is published before it is ready, and matches node
 * ports only on this node's own addresses.
 *
 * Of TCP, only attempts without an answer are deleted, where a frontend is new: each packet of a client
 * that repeats its attempt renews the entry that leads past the Service. Upstream keeps them. Clients of
 * other TCP connections, and those of SCTP, notice.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port, type Protocol } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import { frontendsOf } from "./frontend.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The protocols whose flows are looked after. */
export type TrackedProtocol = Exclude<Protocol, "SCTP">;

/** Called and awaited every 256 ServicePorts. */
type Pause = () => Promise<void> | undefined;

const SLICE_SIZE = 256;
/** Most given-up addresses to keep while conntrack does not work; the oldest are dropped. */
const MOST_GONE = 10_000;

/** The frontends of one IP family and protocol, and the suspects among them. */
export class TrackedFrontends {
  readonly protocol: TrackedProtocol;
  /** As of the last {@linkcode note}. ServicePlans are immutable, so these are references only. */
  readonly #known = new Map<ServicePortKey, ServicePlan>();
  /** The plans that the current sync will apply. */
  readonly #coming = new Map<ServicePortKey, ServicePlan>();
  /** Not yet disposed of. */
  readonly #matchers = new Set<FrontendMatcher>();
  #nodeAddresses: readonly IpAddress[] = [];
  #keys = new Set<ServicePortKey>();
  #goneAddresses = new Map<string, GoneAddress>();
  #goneNodePorts = new Map<Port, ServicePortKey>();

  constructor(protocol: TrackedProtocol) {
    this.protocol = protocol;
  }

  /** Whether there are suspects. */
  get pending(): boolean {
    return this.#keys.size + this.#goneAddresses.size + this.#goneNodePorts.size > 0;
  }

  /** Whether a sync is in progress, or failed and will be retried. */
  get expecting(): boolean {
    return this.#coming.size > 0;
  }

  /**
   * Records the changes that a sync is about to apply. The kernel may have them long before
   * {@linkcode note} is called, so until then both old and new flows are valid.
   */
  expect(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#coming.set(key, next);
      for (const matcher of this.#matchers) matcher.allowGuess(next);
    }
  }

  /** Records applied changes; at the first sync everything. Costs only what changed. */
  note(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    for (const key of changes.removed.keys()) this.#remove(key);
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#set(key, next);
      for (const matcher of this.#matchers) matcher.allow(next);
    }
    const { nodePortAddresses } = plan.shared;
    if (nodePortAddresses === this.#nodeAddresses) return;
    this.#nodeAddresses = nodePortAddresses;
    for (const [key, { nodePort }] of this.#known) if (nodePort !== undefined) this.#keys.add(key);
  }

  /** Makes every frontend a suspect. */
  suspectAll(): void {
    for (const key of this.#known.keys()) this.#keys.add(key);
  }

  /** Returns the suspects and clears the list. */
  take(): SuspectFrontends {
    const suspects = {
      keys: this.#keys,
      goneAddresses: this.#goneAddresses,
      goneNodePorts: this.#goneNodePorts,
    };
    this.#keys = new Set();
    this.#goneAddresses = new Map();
    this.#goneNodePorts = new Map();
    return suspects;
  }

  /** Takes back suspects that could not be checked. */
  giveBack({ keys, goneAddresses, goneNodePorts }: SuspectFrontends): void {
    for (const key of keys) if (this.#known.has(key)) this.#keys.add(key);
    this.#goneAddresses = new Map([...goneAddresses, ...this.#goneAddresses]);
    this.#goneNodePorts = new Map([...goneNodePorts, ...this.#goneNodePorts]);
    dropOldest(this.#goneAddresses);
    dropOldest(this.#goneNodePorts);
  }

  /** Builds a matcher with the currently valid flows of the suspects. */
  async matcherOf(suspects: SuspectFrontends, pause: Pause): Promise<StaleFlowMatcher> {
    const matcher = new FrontendMatcher(this.#nodeAddresses, {
      suspects,
      onDispose: () => void this.#matchers.delete(matcher),
    });
    let seen = 0;
    for (const key of suspects.keys) {
      if (++seen % SLICE_SIZE === 0) await pause();
      const plan = this.#known.get(key);
      if (plan) matcher.watch(plan);
    }
    // An address may have moved to another ServicePort, or be shared: allows every current user.
    this.#matchers.add(matcher);
    const coming = [...this.#coming.values()];
    // A new frontend of TCP has no other user: a walk over all Services would cost more than the change.
    const users = this.protocol === "UDP"
      ? [...this.#known.values()]
      : [...suspects.keys].flatMap((key) => this.#known.get(key) ?? []);
    for (const plan of users) {
      if (++seen % SLICE_SIZE === 0) await pause();
      matcher.allow(plan);
    }
    for (const plan of coming) {
      if (++seen % SLICE_SIZE === 0) await pause();
      matcher.allowGuess(plan);
    }
    return matcher;
  }

  *#upserted(
    plan: ProxyPlan,
    { upserted }: PlanChanges,
  ): Iterable<readonly [ServicePortKey, ServicePlan]> {
    for (const key of upserted) {
      const next = plan.services.get(key);
      if (next?.protocol === this.protocol) yield [key, next];
    }
  }

  #set(key: ServicePortKey, next: ServicePlan): void {
    const previous = this.#known.get(key);
    this.#known.set(key, next);
    if (this.protocol === "TCP") {
      if (hasNewFrontend(previous, next)) this.#keys.add(key);
      return;
    }
    if (previous && hasSameFlows(previous, next)) return;
    if (previous) this.#giveUp(previous);
    this.#keys.add(key);
  }

  #remove(key: ServicePortKey): void {
    const previous = this.#known.get(key);
    if (!previous) return;
    this.#known.delete(key);
    this.#keys.delete(key);
    if (this.protocol === "UDP") this.#giveUp(previous);
  }

  #giveUp(plan: ServicePlan): void {
    const { key, port, nodePort } = plan;
    for (const address of frontendTexts(plan)) this.#goneAddresses.set(address, { port, key });
    if (nodePort !== undefined) this.#goneNodePorts.set(nodePort, key);
    dropOldest(this.#goneAddresses);
  }
}

/** Whether a ServicePort has a frontend that it did not have. */
function hasNewFrontend(previous: ServicePlan | undefined, next: ServicePlan): boolean {
  if (previous === undefined) return true;
  if (next.nodePort !== undefined && next.nodePort !== previous.nodePort) return true;
  const before = new Set(frontendTexts(previous));
  return frontendTexts(next).some((address) => !before.has(address));
}

function hasSameFlows(previous: ServicePlan, next: ServicePlan): boolean {
  const describe = (plan: ServicePlan) =>
    [
      plan.nodePort,
      ...frontendTexts(plan).sort(),
      "answered by",
      ...answeringOf(plan).map(({ key }) => key),
    ].join(" ");
  return describe(previous) === describe(next);
}

function dropOldest<K>(gone: Map<K, unknown>): void {
  for (const oldest of gone.keys()) {
    if (gone.size <= MOST_GONE) return;
    gone.delete(oldest);
  }
}

/** The relevant fields of a tracked flow: its destination, and the address that answers. */
export interface TrackedFlow {
  readonly destination: IpAddress;
  readonly destinationPort: Port;
  /** The endpoint; the destination itself if no rule translated the flow. */
  readonly replySource: IpAddress;
  readonly replySourcePort: Port;
}

/** Frontends that may have stale flows. */
export interface SuspectFrontends {
  /** ServicePorts that exist. */
  readonly keys: ReadonlySet<ServicePortKey>;
  /** `ip:port` that a ServicePort gave up; and node ports given up, with their last ServicePort. */
  readonly goneAddresses: ReadonlyMap<string, GoneAddress>;
  readonly goneNodePorts: ReadonlyMap<Port, ServicePortKey>;
}

/** An address that was given up. */
export interface GoneAddress {
  readonly port: Port;
  /** The last ServicePort of the frontend. */
  readonly key: ServicePortKey;
}

/** Finds stale flows of suspects. Follows later changes until it is disposed of. */
export interface StaleFlowMatcher extends Disposable {
  /** Destination ports that a stale flow may have; empty = no flow can be stale. */
  readonly ports: ReadonlySet<Port>;
  /** Whether it spares flows that are valid only if the current sync succeeds. */
  readonly isGuess: boolean;
  isStale(flow: TrackedFlow): boolean;
  /** The ServicePort that has or had the flow; `undefined` for a flow of no suspect. */
  ownerOf(flow: TrackedFlow): ServicePortKey | undefined;
}

/** The endpoints that may answer at each suspect address. */
class FrontendMatcher implements StaleFlowMatcher {
  readonly ports = new Set<Port>();
  isGuess = false;
  readonly #allowed = new Map<string, Set<string>>();
  readonly #allowedOnNodePort = new Map<Port, Set<string>>();
  readonly #owners = new Map<string, ServicePortKey>();
  readonly #nodePortOwners = new Map<Port, ServicePortKey>();
  readonly #nodeAddresses: ReadonlySet<IpAddress>;
  readonly #onDispose: () => void;

  constructor(
    nodeAddresses: readonly IpAddress[],
    { suspects, onDispose }: {
      readonly suspects: SuspectFrontends;
      readonly onDispose: () => void;
    },
  ) {
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#onDispose = onDispose;
    for (const [address, { port, key }] of suspects.goneAddresses) {
      this.#allowed.set(address, new Set());
      this.#owners.set(address, key);
      this.ports.add(port);
    }
    for (const [nodePort, key] of suspects.goneNodePorts) this.#watchNodePort(nodePort, key);
  }

  /** Adds the frontends of this ServicePort to the suspects. */
  watch(plan: ServicePlan): void {
    for (const address of frontendTexts(plan)) {
      this.#allowed.set(address, new Set());
      this.#owners.set(address, plan.key);
    }
    this.ports.add(plan.port);
    if (plan.nodePort !== undefined) this.#watchNodePort(plan.nodePort, plan.key);
  }

  /** As {@linkcode allow}, for a plan that may never be applied. */
  allowGuess(plan: ServicePlan): void {
    if (this.allow(plan)) this.isGuess = true;
  }

  /**
   * Allows the endpoints of this ServicePort to answer at its suspect frontends. Returns whether
   * some were not allowed before.
   */
  allow(plan: ServicePlan): boolean {
    if (!this.ports.has(plan.port) && !this.ports.has(plan.nodePort ?? plan.port)) return false;
    const answering = answeringOf(plan);
    const sets = frontendTexts(plan).map((address) => this.#allowed.get(address));
    if (plan.nodePort !== undefined) sets.push(this.#allowedOnNodePort.get(plan.nodePort));
    let isNew = false;
    for (const set of sets) {
      for (const { key } of answering) {
        isNew ||= set?.has(key) === false;
        set?.add(key);
      }
    }
    return isNew;
  }

  isStale(flow: TrackedFlow): boolean {
    const allowed = this.#allowed.get(formatHostPort(flow.destination, flow.destinationPort)) ??
      (this.#nodeAddresses.has(flow.destination)
        ? this.#allowedOnNodePort.get(flow.destinationPort)
        : undefined);
    return allowed?.has(formatHostPort(flow.replySource, flow.replySourcePort)) === false;
  }

  ownerOf({ destination, destinationPort }: TrackedFlow): ServicePortKey | undefined {
    return this.#owners.get(formatHostPort(destination, destinationPort)) ??
      this.#nodePortOwners.get(destinationPort);
  }

  [Symbol.dispose](): void {
    this.#onDispose();
  }

  #watchNodePort(nodePort: Port, key: ServicePortKey): void {
    this.#nodePortOwners.set(nodePort, key);
    this.#allowedOnNodePort.set(nodePort, new Set());
    this.ports.add(nodePort);
  }
}

/** `ip:port` of each address of a ServicePort, without its node port. */
function frontendTexts(plan: ServicePlan): string[] {
  return frontendsOf(plan).flatMap(({ address, port }) =>
    address === undefined ? [] : formatHostPort(address, port)
  );
}

/**
 * Endpoints that may keep their flows. Includes one that is terminating and still serves, one that
 * policy or topology would not choose for a new flow, and one that is published before it is ready
 * (`publishNotReadyAddresses`: ready and not serving).
 */
function answeringOf({ endpoints }: ServicePlan): readonly Endpoint[] {
  return endpoints.filter(({ ready, serving }) => ready || serving);
}
