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
import type { EndpointKey } from "./endpoint.ts";
import { frontendsOf } from "./frontend.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The protocols whose flows are looked after. */
export type TrackedProtocol = Exclude<Protocol, "SCTP">;

const SLICE_SIZE = 256;
/** Most given-up addresses to keep while conntrack does not work; the oldest are dropped. */
const MAX_GONE = 10_000;

/** `ip:port`, or `:port` of a node port. */
type FrontendText = string;

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
  /** Frontends that a ServicePort gave up, with the last one that had it. */
  readonly gone: ReadonlyMap<FrontendText, ServicePortKey>;
}

/** The frontends of one IP family and protocol, the suspects among them, and one search at a time. */
export class TrackedFrontends {
  readonly protocol: TrackedProtocol;
  /** As of the last {@linkcode note}. ServicePlans are immutable, so these are references only. */
  readonly #known = new Map<ServicePortKey, ServicePlan>();
  /** The plans that the current sync will apply. */
  readonly #coming = new Map<ServicePortKey, ServicePlan>();
  #nodeAddresses: readonly IpAddress[] = [];
  /**
   * The node addresses of the search: a flow to one that went since remains a suspect, or a deletion
   * that includes it would be given up.
   */
  #searchedAddresses: readonly IpAddress[] = [];
  #keys = new Set<ServicePortKey>();
  #gone = new Map<FrontendText, ServicePortKey>();
  /** The suspects of the search, with the ServicePort that has, or had, each: each has one owner. */
  readonly #owners = new Map<FrontendText, ServicePortKey>();
  /** The plans that the current sync will apply, by suspect of the search. */
  readonly #comingSuspects = new Map<FrontendText, ServicePlan>();
  #isGuess = false;
  /** The frontends of a plan, and the endpoints that may answer there. */
  readonly #valid = new WeakMap<ServicePlan, readonly [Set<FrontendText>, Set<string>]>();

  constructor(protocol: TrackedProtocol) {
    this.protocol = protocol;
  }

  /** Whether there are suspects. */
  get pending(): boolean {
    return this.#keys.size + this.#gone.size > 0;
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
    this.#comingSuspects.clear();
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#coming.set(key, next);
      this.#expectSuspects(next);
    }
  }

  /** Records applied changes; at the first sync everything. Costs only what changed. */
  note(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    this.#comingSuspects.clear();
    for (const key of changes.removed.keys()) this.#remove(key);
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#set(key, next);
      // It has its frontends now, also those that another ServicePort had.
      for (const frontend of this.#suspectsOf(next)) this.#owners.set(frontend, key);
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
    const suspects = { keys: this.#keys, gone: this.#gone };
    this.#keys = new Set();
    this.#gone = new Map();
    return suspects;
  }

  /** Takes back suspects that could not be checked. */
  giveBack({ keys, gone }: SuspectFrontends): void {
    for (const key of keys) if (this.#known.has(key)) this.#keys.add(key);
    this.#gone = new Map([...gone, ...this.#gone]);
    dropOldest(this.#gone);
  }

  /** Begins to search for stale flows of suspects. `pause` is awaited every 256 ServicePorts. */
  async search(
    { keys, gone }: SuspectFrontends,
    pause: () => Promise<void> | undefined,
  ): Promise<void> {
    this.endSearch();
    this.#searchedAddresses = this.#nodeAddresses;
    for (const [frontend, key] of gone) this.#owners.set(frontend, key);
    let seen = 0;
    for (const key of keys) {
      if (++seen % SLICE_SIZE === 0) await pause();
      const plan = this.#known.get(key);
      if (plan) { for (const frontend of frontendTexts(plan)) this.#owners.set(frontend, key); }
    }
    for (const plan of this.#coming.values()) {
      if (++seen % SLICE_SIZE === 0) await pause();
      this.#expectSuspects(plan);
    }
  }

  /** Forgets the suspects of the search. */
  endSearch(): void {
    this.#owners.clear();
    this.#comingSuspects.clear();
    this.#isGuess = false;
  }

  /** Destination ports that a stale flow of the search may have; empty = no flow can be stale. */
  get ports(): ReadonlySet<Port> {
    const portOf = (frontend: FrontendText) =>
      Number(frontend.slice(frontend.lastIndexOf(":") + 1));
    return new Set(this.#owners.keys().map((frontend) => portOf(frontend) as Port));
  }

  /** Whether the search spared flows that are valid only if the current sync succeeds. */
  get isGuess(): boolean {
    return this.#isGuess;
  }

  /** Whether a flow is one of a suspect, and no longer valid. */
  isStale(flow: TrackedFlow): boolean {
    const frontend = this.#suspectOf(flow);
    if (frontend === undefined) return false;
    const answering = formatHostPort(flow.replySource, flow.replySourcePort);
    const isValidIn = (plan: ServicePlan | undefined) => {
      if (plan === undefined) return false;
      const [frontends, endpoints] = this.#valid.getOrInsertComputed(
        plan,
        () => [new Set(frontendTexts(plan)), new Set(answeringOf(plan))],
      );
      return frontends.has(frontend) && endpoints.has(answering);
    };
    if (isValidIn(this.#known.get(this.#owners.get(frontend)!))) return false;
    if (!isValidIn(this.#comingSuspects.get(frontend))) return true;
    this.#isGuess = true;
    return false;
  }

  /** The ServicePort that has or had a flow; `undefined` for a flow of no suspect. */
  ownerOf(flow: TrackedFlow): ServicePortKey | undefined {
    const frontend = this.#suspectOf(flow);
    return frontend === undefined ? undefined : this.#owners.get(frontend);
  }

  #suspectOf({ destination, destinationPort }: TrackedFlow): FrontendText | undefined {
    const frontend = formatHostPort(destination, destinationPort);
    if (this.#owners.has(frontend)) return frontend;
    const nodePort = `:${destinationPort}`;
    return this.#owners.has(nodePort) && this.#searchedAddresses.includes(destination)
      ? nodePort
      : undefined;
  }

  #suspectsOf(plan: ServicePlan): readonly FrontendText[] {
    if (this.#owners.size === 0) return [];
    return frontendTexts(plan).filter((frontend) => this.#owners.has(frontend));
  }

  /** The sync may give the suspect frontends of a plan to it. */
  #expectSuspects(plan: ServicePlan): void {
    for (const frontend of this.#suspectsOf(plan)) this.#comingSuspects.set(frontend, plan);
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
    for (const frontend of frontendTexts(plan)) this.#gone.set(frontend, plan.key);
    dropOldest(this.#gone);
  }
}

/** Whether a ServicePort has a frontend that it did not have. */
function hasNewFrontend(previous: ServicePlan | undefined, next: ServicePlan): boolean {
  const before = new Set(previous && frontendTexts(previous));
  return frontendTexts(next).some((frontend) => !before.has(frontend));
}

function hasSameFlows(previous: ServicePlan, next: ServicePlan): boolean {
  const describe = (plan: ServicePlan) =>
    [...frontendTexts(plan).sort(), "answered by", ...answeringOf(plan)].join(" ");
  return describe(previous) === describe(next);
}

function dropOldest(gone: Map<FrontendText, ServicePortKey>): void {
  for (const oldest of gone.keys()) {
    if (gone.size <= MAX_GONE) return;
    gone.delete(oldest);
  }
}

function frontendTexts(plan: ServicePlan): FrontendText[] {
  return frontendsOf(plan).map(({ address, port }) =>
    address === undefined ? `:${port}` : formatHostPort(address, port)
  );
}

/**
 * Endpoints that may keep their flows. Includes one that is terminating and still serves, one that
 * policy or topology would not choose for a new flow, and one that is published before it is ready
 * (`publishNotReadyAddresses`: ready and not serving).
 */
function answeringOf({ endpoints }: ServicePlan): readonly EndpointKey[] {
  return endpoints.filter(({ ready, serving }) => ready || serving).map(({ key }) => key);
}
