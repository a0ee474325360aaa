/**
 * Counts the traffic of each Service in the kernel: keeps the counting table in step with the
 * plan, and reads it on request. Syncs read nothing, and no sync fails because of it.
 *
 * Every read also compares: foreign changes are repaired, and a counter smaller than before has
 * restarted at 0.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { FamilyTraffic, TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import type { DriftFigures } from "../netfilter/drift_watch.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import type { TableReading } from "../netfilter/nft/table_listing.ts";
import type { EntryId } from "./entry_id.ts";
import {
  type CountedElement,
  countedElements,
  countingSteps,
  countingTable,
  DIRECTIONS,
} from "./counting_table.ts";
import { CountedFrontends } from "./counted_frontends.ts";
import type { DataPlaneEdges } from "../../lib/engine/data_plane.ts";

interface TrafficCountersDependencies extends Omit<DataPlaneEdges, "random"> {
  readonly traffic: FamilyTraffic;
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** The table as it was found. */
interface CountedTable {
  readonly elements: readonly CountedElement[];
  /** The printed sets, chains and rules, without elements. */
  readonly frame: string;
}

/**
 * The result of a read is reused for this multiple of its duration, so constant polling takes at
 * most a tenth of the time.
 */
const REUSE_FACTOR = 10;

/** The counters of one IP family. */
export class TrafficCounters {
  readonly #dependencies: TrafficCountersDependencies;
  readonly #family: IpFamily;
  readonly #runner: NftRunner;
  readonly #turns: OneAtATime;
  readonly #frontends = new CountedFrontends();
  /** The last values of the counters that were not zero. */
  #last = new Map<string, CountedElement>();
  /** Fronts that the kernel counts; `undefined` = not known. */
  #applied: Set<EntryId> | undefined;
  /** The printed chains and rules when they were last correct. */
  #frame: string | undefined;
  #freshUntil = -Infinity;
  #hasPlan = false;
  #hasFailed = false;
  #refreshing: Promise<void> | undefined;

  constructor(
    dependencies: TrafficCountersDependencies,
    { family, turns }: { readonly family: IpFamily; readonly turns: OneAtATime },
  ) {
    this.#dependencies = dependencies;
    this.#family = family;
    this.#runner = new NftRunner(dependencies, countingTable(family));
    this.#turns = turns;
  }

  /** Applies and writes the changes. A failure is logged, and the next sync tries again. */
  async sync(plan: ProxyPlan, changes: PlanChanges): Promise<void> {
    await this.#take(plan, changes);
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

  async #take(plan: ProxyPlan, { everything, upserted, removed }: PlanChanges): Promise<void> {
    this.#hasPlan = true;
    const slice = new TimeSlice(this.#dependencies.clock);
    const gone = everything
      ? [...this.#frontends.keys].filter((key) => !plan.services.has(key))
      : removed.keys();
    for (const key of gone) {
      const name = this.#frontends.delete(key);
      if (name) this.#dependencies.traffic.leave(name);
    }
    for (const key of everything ? plan.services.keys() : upserted) {
      await slice.pause();
      const service = plan.services.get(key);
      if (service) this.#frontends.set(service);
    }
  }

  async #refresh(): Promise<void> {
    const { clock } = this.#dependencies;
    const startedAt = clock.now();
    // Before the first sync nothing is known that could be counted.
    if (startedAt < this.#freshUntil || !this.#hasPlan) return;
    await this.#turns.run(async () => {
      // The last write failed.
      if (this.#applied === undefined) await this.#write();
      const found = await this.#read();
      if (found) await this.#count(found.elements);
      if (found && this.#isIntact(found)) return;
      this.#dependencies.logger.warn("Another program changed the table of counters; repairing");
      this.#dependencies.onDrift?.({ kind: "chain", found: 1, repaired: 1 });
      this.#applied = undefined;
      await this.#write();
    });
    const now = clock.now();
    this.#freshUntil = now + REUSE_FACTOR * (now - startedAt);
  }

  async #read(): Promise<CountedTable | undefined> {
    const reading = await this.#runner.read();
    return reading && {
      elements: await inSteps(this.#dependencies, countedElements(reading)),
      frame: frameOf(reading),
    };
  }

  #isIntact({ elements, frame }: CountedTable): boolean {
    this.#frame ??= frame;
    return frame === this.#frame &&
      elements.length === DIRECTIONS.length * this.#applied!.size &&
      elements.every(({ id }) => this.#applied!.has(id));
  }

  async #count(elements: readonly CountedElement[]): Promise<void> {
    const slice = new TimeSlice(this.#dependencies.clock);
    const before = this.#last;
    this.#last = new Map();
    for (const element of elements) {
      if (element.packets === 0) continue;
      await slice.pause();
      const key = `${element.id} ${element.direction}`;
      this.#last.set(key, element);
      this.#add(element, before.get(key));
    }
  }

  #add(now: CountedElement, before: CountedElement | undefined): void {
    const name = this.#frontends.ownerOf(now.id);
    if (name === undefined) return;
    const isGoingOn = before !== undefined && before.packets <= now.packets;
    const packets = now.packets - (isGoingOn ? before.packets : 0);
    const bytes = now.bytes - (isGoingOn ? before.bytes : 0);
    if (packets === 0) return;
    const traffic = this.#dependencies.traffic.enter(name);
    if (now.direction === "original") {
      traffic.packetsFromClients += packets;
      traffic.bytesFromClients += bytes;
    } else {
      traffic.packetsToClients += packets;
      traffic.bytesToClients += bytes;
    }
  }

  async #write(): Promise<void> {
    const frontends = this.#frontends;
    const known = this.#applied;
    const { applied, empties } = known ? { applied: known, empties: false } : await this.#adopt();
    const ids = known === undefined ? new Set([...applied, ...frontends.ids()]) : frontends.dirty;
    const added = [...ids].filter((id) => frontends.has(id) && !applied.has(id));
    const removed = [...ids].filter((id) => !frontends.has(id) && applied.has(id));
    const declares = known === undefined;
    if (!declares && added.length + removed.length === 0) return frontends.settle();
    // Unknown until it has succeeded.
    this.#applied = undefined;
    const changes = { declares, empties, added, removed };
    await this.#runner.write(
      await inSteps(this.#dependencies, countingSteps(this.#family, changes)),
    );
    for (const id of removed) applied.delete(id);
    for (const id of added) applied.add(id);
    this.#applied = applied;
    this.#hasFailed = false;
    if (declares) this.#frame = undefined;
    frontends.settle();
  }

  /** Takes over the table of an earlier process, if it is complete. */
  async #adopt(): Promise<{ readonly applied: Set<EntryId>; readonly empties: boolean }> {
    const { elements = [] } = await this.#read() ?? {};
    const applied = new Set(elements.map(({ id }) => id));
    const isWhole = elements.length === DIRECTIONS.length * applied.size;
    return isWhole ? { applied, empties: false } : { applied: new Set(), empties: true };
  }

  #failed(error: unknown): void {
    this.#applied = undefined;
    // A kernel that lacks a feature would fail at every sync.
    if (!this.#hasFailed) {
      this.#dependencies.logger.warn(
        "Cannot count the traffic of Services; they are still served",
        {
          error,
        },
      );
    }
    this.#hasFailed = true;
  }
}

function frameOf({ declarations, rules, isDormant }: TableReading): string {
  return JSON.stringify([isDormant, ...declarations, ...rules]);
}

/** The dependencies, present if counting was requested. */
type CountingDependencies =
  & Omit<TrafficCountersDependencies, "traffic">
  & Partial<Pick<TrafficCountersDependencies, "traffic">>;

/**
 * Creates the counters of a family. Without a request returns `undefined` and removes the table of
 * an earlier run, which would slow every packet.
 */
export async function startCounting(
  { traffic, ...dependencies }: CountingDependencies,
  { family, turns }: { readonly family: IpFamily; readonly turns: OneAtATime },
): Promise<TrafficCounters | undefined> {
  if (traffic) return new TrafficCounters({ ...dependencies, traffic }, { family, turns });
  const runner = new NftRunner(dependencies, countingTable(family));
  if (await runner.isThere()) await runner.remove();
  return undefined;
}

/** Returns the counts of a ServicePort; `undefined` = none, or it shares its counters. */
export function countedFor(
  { name }: Pick<ServicePlan, "name">,
  traffic: FamilyTraffic | undefined,
): TrafficFigures | undefined {
  const counted = traffic?.get(name);
  if (counted === undefined) return undefined;
  const { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients } = counted;
  return { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients };
}
