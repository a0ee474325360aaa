/**
 * Items of a plan whose rules the kernel refused, such as ServicePorts, and the times of the next
 * attempts. Pure except for its own state.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/engine/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/** The reason why an item was refused, and the time of the next attempt. */
interface Refusal {
  readonly reason: string;
  /** Milliseconds of the given clock. */
  readonly retryAt: number;
}

/** Each attempt costs a failed write, a full read and a write without the item. */
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 300_000;

/** The refused items. All times are from one clock, in milliseconds. */
export class RefusedItems<Item extends { readonly key: string } = ServicePlan> {
  readonly #refusals = new Map<
    Item["key"],
    Refusal & { readonly item: Item; readonly failures: number }
  >();

  /** The kernel refused this item. */
  refuse(item: Item, reason: string, now: number): Refusal {
    const failures = (this.#refusals.get(item.key)?.failures ?? 0) + 1;
    const pause = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
    const refusal = { item, reason, failures, retryAt: now + pause };
    this.#refusals.set(item.key, refusal);
    return refusal;
  }

  /** The refused items, with the times of their next attempts. */
  get refusals(): ReadonlyMap<Item["key"], Refusal> {
    return this.#refusals;
  }

  /**
   * Returns the refusal of this very item while it is too early to try it again. A changed item may
   * be tried at once.
   */
  waitingFor(item: Item, now: number): Refusal | undefined {
    const refusal = this.#refusals.get(item.key);
    return refusal?.item === item && now < refusal.retryAt ? refusal : undefined;
  }

  /**
   * Forgets all refusals: the settings of all rules have changed, so the kernel may accept them
   * now.
   */
  forgetAll(): void {
    this.#refusals.clear();
  }

  /** Forgets the items that were accepted. */
  settle(isAccepted: (key: Item["key"]) => boolean): void {
    for (const key of this.#refusals.keys()) if (isAccepted(key)) this.#refusals.delete(key);
  }

  /** Forgets an item that was accepted or removed. */
  forget(key: Item["key"]): void {
    this.#refusals.delete(key);
  }
}

/**
 * Puts those of a layout in quarantine that the kernel refused for these reasons. Returns whether it has
 * any of them.
 */
export function quarantineRefused(
  layout: {
    plan(key: ServicePortKey): ServicePlan | undefined;
    /** The plan that was asked for, in place of one that is served. @default {the same} */
    askedPlan?(key: ServicePortKey): ServicePlan | undefined;
    quarantine(item: Quarantined<ServicePortKey>, plan: ServicePlan): void;
  },
  reasons: ReadonlyMap<ServicePortKey, string>,
  refused: RefusedItems,
  clock: Pick<Clock, "now" | "wallNow">,
): boolean {
  let found = false;
  for (const [key, reason] of reasons) {
    const plan = layout.plan(key);
    if (plan === undefined) continue;
    const asked = layout.askedPlan?.(key) ?? plan;
    const refusal = refused.refuse(asked, reason, clock.now());
    layout.quarantine(refusedItem(clock, key, refusal), plan);
    found = true;
  }
  return found;
}

/** A refusal as it is reported, with the time of day. */
export function refusedItem<Key>(
  clock: Pick<Clock, "now" | "wallNow">,
  key: Key,
  { reason, retryAt }: Refusal,
): Quarantined<Key> {
  const at = clock.wallNow() + retryAt - clock.now();
  return { key, reason, retryAt: new Date(at).toISOString() };
}

/** A comment at the end of rendered input; comments of the tools end with their line. */
export function leftOutText({ key, address, reason }: Quarantined<ServicePortKey>): string {
  return `# Left out: ${key}${address === undefined ? "" : ` (${address})`}: ${reason}\n`;
}

/** The refused items, by ServicePort. The kernel must hold nothing of them, or an earlier plan. */
export function refusedByKey(
  quarantined: readonly Quarantined<ServicePortKey>[] = [],
): ReadonlyMap<ServicePortKey, Quarantined<ServicePortKey>> {
  const refused = quarantined.filter(({ address, retryAt }) =>
    address === undefined && retryAt !== undefined
  );
  return new Map(refused.map((item) => [item.key, item]));
}
