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
  /** The matcher in use. */
  #matcher: FrontendMatcher | undefined;
  #nodeAddresses: readonly IpAddress[] = [];
  #keys = new Set<ServicePortKey>();
  #gone = new Map<FrontendText, ServicePortKey>();

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
    this.#matcher?.coming.clear();
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#coming.set(key, next);
      this.#matcher?.expect(next);
    }
  }

  /** Records applied changes; at the first sync everything. Costs only what changed. */
  note(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    this.#matcher?.coming.clear();
    for (const key of changes.removed.keys()) this.#remove(key);
    for (const [key, next] of this.#upserted(plan, changes)) {
      this.#set(key, next);
      this.#matcher?.take(next);
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

  /** Builds the matcher of the suspects. There is one at a time. */
  async matcherOf({ keys, gone }: SuspectFrontends, pause: Pause): Promise<StaleFlowMatcher> {
    const matcher = new FrontendMatcher(this.#known, this.#nodeAddresses, () => {
      this.#matcher = undefined;
    });
    this.#matcher = matcher;
    for (const [frontend, key] of gone) matcher.watch(frontend, key);
    let seen = 0;
    for (const key of keys) {
      if (++seen % SLICE_SIZE === 0) await pause();
      const plan = this.#known.get(key);
      if (plan) { for (const frontend of frontendTexts(plan)) matcher.watch(frontend, key); }
    }
    for (const plan of this.#coming.values()) {
      if (++seen % SLICE_SIZE === 0) await pause();
      matcher.expect(plan);
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
    if (gone.size <= MOST_GONE) return;
    gone.delete(oldest);
  }
}

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

/** Finds stale flows of suspects. Follows later changes until it is disposed of. */
export interface StaleFlowMatcher extends Disposable {
  /** Destination ports that a stale flow may have; empty = no flow can be stale. */
  readonly ports: ReadonlySet<Port>;
  /** Whether it spared flows that are valid only if the current sync succeeds. */
  readonly isGuess: boolean;
  isStale(flow: TrackedFlow): boolean;
  /** The ServicePort that has or had the flow; `undefined` for a flow of no suspect. */
  ownerOf(flow: TrackedFlow): ServicePortKey | undefined;
}

/** What is valid of a plan: its frontends, and the endpoints that may answer there. */
interface ValidFlows {
  readonly frontends: ReadonlySet<FrontendText>;
  readonly endpoints: ReadonlySet<string>;
}

class FrontendMatcher implements StaleFlowMatcher {
  readonly ports = new Set<Port>();
  isGuess = false;
  /** Plans that the current sync will apply, by suspect frontend. */
  readonly coming = new Map<FrontendText, ServicePlan>();
  /** The ServicePort that has, or had, each suspect frontend: each has one owner. */
  readonly #owners = new Map<FrontendText, ServicePortKey>();
  readonly #known: ReadonlyMap<ServicePortKey, ServicePlan>;
  readonly #nodeAddresses: ReadonlySet<IpAddress>;
  readonly #onDispose: () => void;
  readonly #valid = new WeakMap<ServicePlan, ValidFlows>();

  constructor(
    known: ReadonlyMap<ServicePortKey, ServicePlan>,
    nodeAddresses: readonly IpAddress[],
    onDispose: () => void,
  ) {
    this.#known = known;
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#onDispose = onDispose;
  }

  /** Adds a suspect. */
  watch(frontend: FrontendText, owner: ServicePortKey): void {
    this.#owners.set(frontend, owner);
    this.ports.add(Number(frontend.slice(frontend.lastIndexOf(":") + 1)) as Port);
  }

  /** The sync may give the suspect frontends of a plan to it. */
  expect(plan: ServicePlan): void {
    for (const frontend of frontendTexts(plan)) {
      if (this.#owners.has(frontend)) this.coming.set(frontend, plan);
    }
  }

  /** The plan has its frontends now, also those that another ServicePort had. */
  take(plan: ServicePlan): void {
    for (const frontend of frontendTexts(plan)) {
      if (this.#owners.has(frontend)) this.#owners.set(frontend, plan.key);
    }
  }

  isStale(flow: TrackedFlow): boolean {
    const frontend = this.#suspectOf(flow);
    if (frontend === undefined) return false;
    const answering = formatHostPort(flow.replySource, flow.replySourcePort);
    const isValidIn = (plan: ServicePlan | undefined) => {
      if (plan === undefined) return false;
      const { frontends, endpoints } = this.#valid.getOrInsertComputed(plan, () => ({
        frontends: new Set(frontendTexts(plan)),
        endpoints: new Set(answeringOf(plan)),
      }));
      return frontends.has(frontend) && endpoints.has(answering);
    };
    if (isValidIn(this.#known.get(this.#owners.get(frontend)!))) return false;
    if (!isValidIn(this.coming.get(frontend))) return true;
    this.isGuess = true;
    return false;
  }

  ownerOf(flow: TrackedFlow): ServicePortKey | undefined {
    const frontend = this.#suspectOf(flow);
    return frontend === undefined ? undefined : this.#owners.get(frontend);
  }

  [Symbol.dispose](): void {
    this.#onDispose();
  }

  #suspectOf({ destination, destinationPort }: TrackedFlow): FrontendText | undefined {
    const frontend = formatHostPort(destination, destinationPort);
    if (this.#owners.has(frontend)) return frontend;
    const nodePort = `:${destinationPort}`;
    return this.#nodeAddresses.has(destination) && this.#owners.has(nodePort)
      ? nodePort
      : undefined;
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
