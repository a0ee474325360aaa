/**
 * Which UDP flows the kernel has to forget. A flow that it tracks goes on to the endpoint that it
 * began with, past all rules, for as long as the client keeps sending.
 *
 * Upstream (1.36) looks at Services that have endpoints only. We also end flows to those that have
 * none, to Services that are gone and to addresses and ports that were given up (kubernetes issue
 * 139628), leave those alone whose endpoint is published though not ready, and take a node port for
 * one on this node's own addresses only. TCP and SCTP are never touched: their clients notice.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** Of a tracked UDP flow what decides: where its client sends to, and who answers. */
export interface UdpFlow {
  readonly destination: IpAddress;
  readonly destinationPort: Port;
  /** The endpoint; the destination itself for a flow that no rule has turned. */
  readonly replySource: IpAddress;
  readonly replySourcePort: Port;
}

/** What may have stale flows. */
export interface SuspectFrontEnds {
  /** ServicePorts that are there. */
  readonly keys: ReadonlySet<ServicePortKey>;
  /** `ip:port` that some ServicePort had and gave up, with the port once more; and node ports. */
  readonly goneAddresses: ReadonlyMap<string, Port>;
  readonly goneNodePorts: ReadonlySet<Port>;
}

/** Judges flows to suspects, by all that has come since it was made too, until it is disposed of. */
export interface StaleFlowMatcher extends Disposable {
  /** Destination ports that a stale flow may have; empty = there is nothing to look for. */
  readonly ports: ReadonlySet<Port>;
  /** Whether it spares flows that are right only if the sync under way succeeds. */
  readonly isGuess: boolean;
  isStale(flow: UdpFlow): boolean;
}

/** Called every 256 ServicePorts; what it returns is waited for. */
export type Pause = () => Promise<void> | undefined;

const SLICE_SIZE = 256;
/** What was given up and could not be looked after, where conntrack never works: the oldest go. */
const MOST_GONE = 10_000;

/** The UDP front ends of one IP family, and which of them are suspects. */
export class UdpFrontEnds {
  /** As last noted. ServicePlans are immutable, so these are references only. */
  readonly #known = new Map<ServicePortKey, ServicePlan>();
  /** What the sync under way is about to bring. */
  readonly #coming = new Map<ServicePortKey, ServicePlan>();
  /** Not yet disposed of. */
  readonly #matchers = new Set<FrontEndMatcher>();
  #nodeAddresses: readonly IpAddress[] = [];
  #keys = new Set<ServicePortKey>();
  #goneAddresses = new Map<string, Port>();
  #goneNodePorts = new Set<Port>();

  /** Whether there are suspects. */
  get pending(): boolean {
    return this.#keys.size + this.#goneAddresses.size + this.#goneNodePorts.size > 0;
  }

  /** Whether a sync is under way, or failed and comes again. */
  get expecting(): boolean {
    return this.#coming.size > 0;
  }

  /**
   * Takes what a sync is about to bring: the kernel may have it long before {@linkcode note} is told,
   * so from now on the flows of before and those of then are right.
   */
  expect(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    for (const [key, next] of upsertedUdp(plan, changes)) {
      this.#coming.set(key, next);
      for (const matcher of this.#matchers) matcher.allowGuess(next);
    }
  }

  /** Takes what changed; at the first sync everything did. Costs what changed. */
  note(plan: ProxyPlan, changes: PlanChanges): void {
    this.#coming.clear();
    for (const key of changes.removed.keys()) this.#remove(key);
    for (const [key, next] of upsertedUdp(plan, changes)) {
      this.#set(key, next);
      for (const matcher of this.#matchers) matcher.allow(next);
    }
    const { nodePortAddresses } = plan.shared;
    if (nodePortAddresses === this.#nodeAddresses) return;
    this.#nodeAddresses = nodePortAddresses;
    for (const [key, { nodePort }] of this.#known) if (nodePort !== undefined) this.#keys.add(key);
  }

  /** Makes every front end a suspect. */
  suspectAll(): void {
    for (const key of this.#known.keys()) this.#keys.add(key);
  }

  /** Hands out the suspects; there are none then. */
  take(): SuspectFrontEnds {
    const suspects = {
      keys: this.#keys,
      goneAddresses: this.#goneAddresses,
      goneNodePorts: this.#goneNodePorts,
    };
    this.#keys = new Set();
    this.#goneAddresses = new Map();
    this.#goneNodePorts = new Set();
    return suspects;
  }

  /** Takes suspects back that could not be looked after. */
  giveBack({ keys, goneAddresses, goneNodePorts }: SuspectFrontEnds): void {
    for (const key of keys) if (this.#known.has(key)) this.#keys.add(key);
    this.#goneAddresses = new Map([...goneAddresses, ...this.#goneAddresses]);
    this.#goneNodePorts = new Set([...goneNodePorts, ...this.#goneNodePorts]);
    dropOldest(this.#goneAddresses);
    dropOldest(this.#goneNodePorts);
  }

  /** What is right for the suspects now. */
  async matcherOf(suspects: SuspectFrontEnds, pause: Pause): Promise<StaleFlowMatcher> {
    const matcher = new FrontEndMatcher(this.#nodeAddresses, {
      suspects,
      onDispose: () => void this.#matchers.delete(matcher),
    });
    let seen = 0;
    for (const key of suspects.keys) {
      if (++seen % SLICE_SIZE === 0) await pause();
      const plan = this.#known.get(key);
      if (plan) matcher.watch(plan);
    }
    // An address may have moved to another ServicePort, or be shared: whoever has it now is asked.
    this.#matchers.add(matcher);
    const coming = [...this.#coming.values()];
    for (const plan of [...this.#known.values()]) {
      if (++seen % SLICE_SIZE === 0) await pause();
      matcher.allow(plan);
    }
    for (const plan of coming) {
      if (++seen % SLICE_SIZE === 0) await pause();
      matcher.allowGuess(plan);
    }
    return matcher;
  }

  #set(key: ServicePortKey, next: ServicePlan): void {
    const previous = this.#known.get(key);
    this.#known.set(key, next);
    if (previous && hasSameFlows(previous, next)) return;
    if (previous) this.#giveUp(previous);
    this.#keys.add(key);
  }

  #remove(key: ServicePortKey): void {
    const previous = this.#known.get(key);
    if (!previous) return;
    this.#known.delete(key);
    this.#keys.delete(key);
    this.#giveUp(previous);
  }

  #giveUp(plan: ServicePlan): void {
    for (const address of frontEndsOf(plan)) this.#goneAddresses.set(address, plan.port);
    if (plan.nodePort !== undefined) this.#goneNodePorts.add(plan.nodePort);
    dropOldest(this.#goneAddresses);
  }
}

/** Who may answer at each address that is looked at. */
class FrontEndMatcher implements StaleFlowMatcher {
  readonly ports = new Set<Port>();
  isGuess = false;
  readonly #allowed = new Map<string, Set<string>>();
  readonly #allowedOnNodePort = new Map<Port, Set<string>>();
  readonly #nodeAddresses: ReadonlySet<IpAddress>;
  readonly #onDispose: () => void;

  constructor(
    nodeAddresses: readonly IpAddress[],
    { suspects, onDispose }: {
      readonly suspects: SuspectFrontEnds;
      readonly onDispose: () => void;
    },
  ) {
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#onDispose = onDispose;
    for (const [address, port] of suspects.goneAddresses) {
      this.#allowed.set(address, new Set());
      this.ports.add(port);
    }
    for (const nodePort of suspects.goneNodePorts) this.#watchNodePort(nodePort);
  }

  /** Looks at the front ends of this ServicePort. */
  watch(plan: ServicePlan): void {
    for (const address of frontEndsOf(plan)) this.#allowed.set(address, new Set());
    this.ports.add(plan.port);
    if (plan.nodePort !== undefined) this.#watchNodePort(plan.nodePort);
  }

  /** As {@linkcode allow}, for a plan that may never come. */
  allowGuess(plan: ServicePlan): void {
    if (this.allow(plan)) this.isGuess = true;
  }

  /**
   * Lets the endpoints of this ServicePort answer at those of its front ends that are looked at.
   * Returns whether some might not before.
   */
  allow(plan: ServicePlan): boolean {
    if (!this.ports.has(plan.port) && !this.ports.has(plan.nodePort ?? plan.port)) return false;
    const answering = answeringOf(plan);
    const sets = frontEndsOf(plan).map((address) => this.#allowed.get(address));
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

  isStale(flow: UdpFlow): boolean {
    const allowed = this.#allowed.get(formatHostPort(flow.destination, flow.destinationPort)) ??
      (this.#nodeAddresses.has(flow.destination)
        ? this.#allowedOnNodePort.get(flow.destinationPort)
        : undefined);
    return allowed?.has(formatHostPort(flow.replySource, flow.replySourcePort)) === false;
  }

  [Symbol.dispose](): void {
    this.#onDispose();
  }

  #watchNodePort(nodePort: Port): void {
    this.#allowedOnNodePort.set(nodePort, new Set());
    this.ports.add(nodePort);
  }
}

function* upsertedUdp(
  plan: ProxyPlan,
  { upserted }: PlanChanges,
): Iterable<readonly [ServicePortKey, ServicePlan]> {
  for (const key of upserted) {
    const next = plan.services.get(key);
    if (next?.protocol === "UDP") yield [key, next];
  }
}

function frontEndsOf(plan: ServicePlan): string[] {
  return [plan.clusterIp, ...plan.loadBalancerVips, ...plan.externalIps]
    .map((address) => formatHostPort(address, plan.port));
}

/**
 * Endpoints that may keep their flows: also one that is ending and still answers, one that policy or
 * topology would not choose for a new flow, and one that is published though it is not ready
 * (`publishNotReadyAddresses`: ready and not serving).
 */
function answeringOf({ endpoints }: ServicePlan): readonly Endpoint[] {
  return endpoints.filter(({ ready, serving }) => ready || serving);
}

function hasSameFlows(previous: ServicePlan, next: ServicePlan): boolean {
  const describe = (plan: ServicePlan) =>
    [
      plan.nodePort,
      ...frontEndsOf(plan).sort(),
      "answered by",
      ...answeringOf(plan).map(({ key }) => key),
    ].join(" ");
  return describe(previous) === describe(next);
}

function dropOldest<K>(gone: Set<K> | Map<K, unknown>): void {
  for (const oldest of gone.keys()) {
    if (gone.size <= MOST_GONE) return;
    gone.delete(oldest);
  }
}
