/**
 * Counts the traffic of each Service in the kernel: keeps the counting table in step with the
 * plan, and reads it on request. Syncs of a known table read nothing, and no sync fails because of it.
 *
 * Every read also compares: foreign changes are repaired, and a counter smaller than before has
 * restarted at 0.
 *
 * @module
 */
import {
  type Batch,
  type KernelObject,
  type Objects,
  Reconciler,
  type Target,
} from "../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import { frontendsOf } from "../../lib/proxy/frontend.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey, ServicePortName } from "../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../lib/proxy/service_traffic.ts";
import type { RulePlaneEdges } from "../netfilter/rule_plane.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { chainObject, containerObjects, NftTable } from "../netfilter/nft/nft_table.ts";
import type { NftCounter, TableReading } from "../netfilter/nft/table_listing.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import { frontendName } from "./service_objects.ts";
import { EXPRESSIONS } from "./containers.ts";

/** The direction of a packet, as conntrack defines it. */
const DIRECTIONS = ["original", "reply"] as const;

const PROTOCOLS = "meta l4proto { tcp, udp, sctp }";
const PORT = "meta l4proto . ct original proto-dst . ct direction";
const COUNT = "ct status dnat goto count";
/** After all DNAT of the usual priority, before filters of the usual one. */
const PRIORITY = -80;

/** The table of one family. */
export function countingTable(family: IpFamily): NftTableSpec {
  const { address, table } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service . ct_dir";
  const set = (type: string): NftContainer => ({
    kind: "set",
    declaration: `type ${type} ; counter`,
  });
  return {
    family: table,
    name: "kube-relay-counters",
    containers: new Map([["service-ips", set(`${address} . ${port}`)], ["node-ports", set(port)]]),
  };
}

/** Its chains. */
function countingChains(family: IpFamily): readonly NftChain[] {
  const { table } = EXPRESSIONS[family];
  const hookAt = (hook: string) => `type filter hook ${hook} priority ${PRIORITY}`;
  // Without the protocols first, nft 1.0.6 takes a port of conntrack into no key.
  const vip = `${PROTOCOLS} ct original ${table} daddr . ${PORT}`;
  return [
    {
      name: "count",
      rules: [`${vip} @service-ips accept`, `${PROTOCOLS} ${PORT} @node-ports accept`],
    },
    { name: "arriving", hook: hookAt("prerouting"), rules: [`iif != "lo" ${COUNT}`] },
    { name: "sent", hook: hookAt("output"), rules: [COUNT] },
  ];
}

/** What belongs to no Service: the sets and the chains. */
export function countingFrame(family: IpFamily): readonly KernelObject[] {
  return [
    ...containerObjects(countingTable(family)),
    ...countingChains(family).map(chainObject),
  ];
}

/** The counters of a ServicePort: one for each frontend and direction. Several may share them. */
export function countersOf(plan: ServicePlan): readonly KernelObject[] {
  return frontendsOf(plan).flatMap((frontend) => {
    const { kind, name } = frontendName(frontend, plan);
    return DIRECTIONS.map((direction) => ({
      ...{ kind, name: `${name} . ${direction}`, text: "" },
      isShared: true as const,
    }));
  });
}

/**
 * The result of a read is reused for this multiple of its duration, so constant polling takes at
 * most a tenth of the time.
 */
const REUSE_FACTOR = 10;

/** The group of what belongs to no Service. */
const FRAME = "frame";
type Key = ServicePortKey | typeof FRAME;
type Item = ServicePlan | typeof FRAME;

/** The counters of one IP family, and their table for the engine. */
export class TrafficCounters implements Target<Key, Item, string> {
  readonly root: KernelObject;
  readonly #dependencies: Omit<RulePlaneEdges, "random">;
  readonly #family: IpFamily;
  readonly #traffic: FamilyTraffic;
  readonly #turns: OneAtATime;
  readonly #table: NftTable;
  readonly #engine: Reconciler<Key, Item, string>;
  #plan: ProxyPlan | undefined;
  /** ServicePorts that may differ from what was written. */
  readonly #changed = new Set<ServicePortKey>();
  /** The last values of the counters that were not zero, by element. */
  #last = new Map<string, NftCounter>();
  /** The counters that were read last, by set and element. */
  #found: TableReading["counters"] = new Map();
  #freshUntil = -Infinity;
  #hasFailed = false;
  #refreshing: Promise<void> | undefined;

  constructor(
    dependencies: Omit<RulePlaneEdges, "random">,
    family: IpFamily,
    traffic: FamilyTraffic,
    turns: OneAtATime,
  ) {
    this.#dependencies = dependencies;
    this.#family = family;
    this.#traffic = traffic;
    this.#turns = turns;
    const spec = countingTable(family);
    this.#table = new NftTable({ runner: new NftRunner(dependencies, spec), spec });
    this.root = this.#table.root;
    this.#engine = new Reconciler(dependencies, this);
  }

  *keys(): Generator<Key> {
    yield FRAME;
    yield* this.#plan?.services.keys() ?? [];
  }

  dirty(): Iterable<Key> {
    return this.#changed;
  }

  settle(): void {
    this.#changed.clear();
  }

  arrange(key: Key): Item | undefined {
    return key === FRAME ? FRAME : this.#plan?.services.get(key);
  }

  objectsOf(item: Item): readonly KernelObject[] {
    return item === FRAME ? countingFrame(this.#family) : countersOf(item);
  }

  async read(): Promise<Objects | undefined> {
    const found = await this.#table.read(() => countingChains(this.#family));
    this.#found = found?.table.counters ?? new Map();
    return found?.objects;
  }

  begin(): Batch<string> {
    return this.#table.begin();
  }

  tidy(options: { readonly all: boolean }): Promise<boolean> {
    return this.#table.tidy(options);
  }

  /** Applies and writes the changes. A failure is logged, and the next sync tries again. */
  async sync(plan: ProxyPlan, { everything, upserted, removed }: PlanChanges): Promise<void> {
    this.#plan = plan;
    const { applied } = this.#engine;
    const slice = new TimeSlice(this.#dependencies.clock);
    for (const key of everything ? applied.keys() : removed.keys()) {
      await slice.pause();
      const gone = applied.get(key);
      if (gone === undefined || gone === FRAME) continue;
      this.#changed.add(gone.key);
      if (!everything || !plan.services.has(gone.key)) this.#traffic.leave(gone.name);
    }
    for (const key of upserted) this.#changed.add(key);
    await this.#write().catch((error) => this.#failed(error));
  }

  /** Brings the figures up to date. Rejects when the table cannot be read. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#refresh().finally(() => this.#refreshing = undefined);
    return this.#refreshing;
  }

  /** As {@linkcode refresh}; unreadable counters keep their last values. */
  async tryRefresh(): Promise<void> {
    await this.refresh().catch((error) =>
      this.#dependencies.logger.warn("Cannot read the traffic counters of Services", { error })
    );
  }

  async #refresh(): Promise<void> {
    const { clock, logger, onDrift } = this.#dependencies;
    const startedAt = clock.now();
    // Before the first sync nothing is known that could be counted.
    if (startedAt < this.#freshUntil || this.#plan === undefined) return;
    await this.#turns.run(async () => {
      // The last write failed.
      if (!this.#engine.isKnown) await this.#write();
      // What was read counts, even if its repair is refused.
      const changes = await this.#engine.verify().finally(() => this.#count());
      if (changes.length === 0) return;
      logger.warn("Another program changed the table of counters; repairing");
      onDrift?.({ kind: "chain", found: 1, repaired: 1 });
    });
    const now = clock.now();
    this.#freshUntil = now + REUSE_FACTOR * (now - startedAt);
  }

  /** Adds what was counted. */
  async #count(): Promise<void> {
    const slice = new TimeSlice(this.#dependencies.clock);
    const last = new Map<string, NftCounter>();
    for (const plan of this.#engine.applied.values()) {
      await slice.pause();
      if (plan === FRAME) continue;
      for (const { kind, name: key } of countersOf(plan)) {
        const element = `${kind} ${key}`;
        const counter = this.#found.get(kind)?.get(key);
        // ServicePorts may share one: the first has it.
        if (counter === undefined || counter.packets === 0 || last.has(element)) continue;
        last.set(element, counter);
        this.#add(plan.name, key.endsWith(" reply"), counter, this.#last.get(element));
      }
    }
    this.#last = last;
  }

  /** A counter that is smaller than before has started at 0 again. */
  #add(name: ServicePortName, isReply: boolean, now: NftCounter, before?: NftCounter): void {
    const isGoingOn = before !== undefined && before.packets <= now.packets;
    const packets = now.packets - (isGoingOn ? before.packets : 0);
    const bytes = now.bytes - (isGoingOn ? before.bytes : 0);
    if (packets === 0) return;
    const traffic = this.#traffic.enter(name);
    if (isReply) {
      traffic.packetsToClients += packets;
      traffic.bytesToClients += bytes;
    } else {
      traffic.packetsFromClients += packets;
      traffic.bytesFromClients += bytes;
    }
  }

  async #write(): Promise<void> {
    await this.#engine.sync();
    this.#hasFailed = false;
  }

  #failed(error: unknown): void {
    // A kernel that lacks a feature would fail at every sync.
    if (!this.#hasFailed) {
      const message = "Cannot count the traffic of Services; they are still served";
      this.#dependencies.logger.warn(message, { error });
    }
    this.#hasFailed = true;
  }
}
