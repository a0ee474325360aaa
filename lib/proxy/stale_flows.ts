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
import type { Port } from "../net/port.ts";
import {
  answeringOf,
  FrontEndMatcher,
  frontEndsOf,
  type GoneAddress,
  type StaleFlowMatcher,
  type SuspectFrontEnds,
} from "./front_end_matcher.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

export type { StaleFlowMatcher, SuspectFrontEnds, UdpFlow } from "./front_end_matcher.ts";

/** Everybody whose flows are looked at, those that are gone as well. */
export function* suspectKeys(suspects: SuspectFrontEnds): Generator<ServicePortKey> {
  yield* suspects.keys;
  for (const { key } of suspects.goneAddresses.values()) yield key;
  yield* suspects.goneNodePorts.values();
}

/** Called every 256 ServicePorts; what it returns is waited for. */
type Pause = () => Promise<void> | undefined;

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
  #goneAddresses = new Map<string, GoneAddress>();
  #goneNodePorts = new Map<Port, ServicePortKey>();

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
    this.#goneNodePorts = new Map();
    return suspects;
  }

  /** Takes suspects back that could not be looked after. */
  giveBack({ keys, goneAddresses, goneNodePorts }: SuspectFrontEnds): void {
    for (const key of keys) if (this.#known.has(key)) this.#keys.add(key);
    this.#goneAddresses = new Map([...goneAddresses, ...this.#goneAddresses]);
    this.#goneNodePorts = new Map([...goneNodePorts, ...this.#goneNodePorts]);
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
    const { key, port, nodePort } = plan;
    for (const address of frontEndsOf(plan)) this.#goneAddresses.set(address, { port, key });
    if (nodePort !== undefined) this.#goneNodePorts.set(nodePort, key);
    dropOldest(this.#goneAddresses);
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

function dropOldest<K>(gone: Map<K, unknown>): void {
  for (const oldest of gone.keys()) {
    if (gone.size <= MOST_GONE) return;
    gone.delete(oldest);
  }
}
