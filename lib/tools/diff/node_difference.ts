/**
 * How a machine differs from the plans of a node, and what a repair of it did.
 *
 * @module
 */
import type { PolicyBackend } from "../../app/policy/policy_backend.ts";
import type { LoopActivity } from "../../engine/controller.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ComparisonScope } from "../../proxy/service_mode.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import {
  type ComparedLayer2,
  compareLayer2,
  type RoutingDifference,
} from "../../routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { EntryLoop } from "../changes/change_entry.ts";
import type { ChangeLog } from "../changes/change_log.ts";

/** The differences of one family, of Services or of another controller. */
export interface FamilyDifference extends EntryLoop {
  readonly differences: readonly DataPlaneDifference[];
  /** With `--repair`. */
  readonly repair?: {
    /** The differences before. */
    readonly found: readonly DataPlaneDifference[];
    /** Their number by name. */
    readonly operations: Readonly<Record<string, number>>;
    /** What the kernel refused, so that it is in quarantine now. */
    readonly refused: readonly string[];
    /** Why nothing, or not everything, could be written. */
    readonly error?: string;
  };
  /** Failed syncs since the last successful one, if any: a repair writes nothing until one succeeds. */
  readonly failures?: number;
  readonly lastError?: string;
  /** Whether syncs went on, so that some differences may be unfinished changes. */
  readonly isUnsettled?: true;
  /** Left out by the running process until the next try; these are no differences. */
  readonly quarantined: readonly Quarantined<string>[];
}

/** The differences between a machine and the plans of a node. */
export interface NodeDifference {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly families: readonly FamilyDifference[];
  /** Addresses and routes; absent if they are not compared. */
  readonly routing?: RoutingComparison;
}

/** How the addresses and routes of a machine differ from the plan. */
export interface RoutingComparison {
  readonly differences: readonly RoutingDifference[];
  /** Why BGP or the network of pods was not compared. */
  readonly problem?: string;
}

/** The differences that a repair did not correct, because it could not, or because the kernel refused. */
export function unrepaired(
  { differences, repair }: FamilyDifference,
): readonly DataPlaneDifference[] {
  const refused = repair?.found.filter(({ key = "" }) => repair.refused.includes(key)) ?? [];
  return [...differences, ...refused];
}

/** Whether a repair failed. A difference with another remedy is none of its own. */
export function isRepairFailed({ families }: NodeDifference): boolean {
  return families.some(({ differences, isUnsettled, repair }) =>
    repair !== undefined && (repair.error !== undefined || repair.refused.length > 0 ||
      // While syncs go on, a difference may be an unfinished change.
      (!isUnsettled && differences.some(({ cure }) => cure === undefined)))
  );
}

/** The number of differences. */
export function countDifferences({ families, routing }: NodeDifference): number {
  const ofRouting = routing?.differences.length ?? 0;
  return families.reduce((sum, { differences }) => sum + differences.length, ofRouting);
}

/** Chooses the compared ServicePorts; `undefined` = all. */
export type ChosenKeys = ((plan: ProxyPlan) => ReadonlySet<ServicePortKey>) | undefined;

/** Compares this machine with one family's plan. Rejects if the machine cannot be read. */
export async function compareFamily(
  backend: Pick<Backend, "compare">,
  plan: ProxyPlan,
  keys: ChosenKeys,
  { quarantined = [], serving }: Pick<ComparisonScope, "quarantined" | "serving">,
): Promise<FamilyDifference> {
  const chosen = keys?.(plan);
  const differences = await backend.compare(plan, { keys: chosen, quarantined, serving });
  return {
    family: plan.family,
    quarantined: quarantined.filter(({ key }) => chosen?.has(key) ?? true),
    differences,
  };
}

/**
 * Compares the rules on the machine with those of NetworkPolicies of one family; none are written without a
 * backend. Rejects if the machine cannot be read.
 */
export async function comparePolicyRules(
  backend: Pick<PolicyBackend, "compare"> | undefined,
  plan: PolicyPlan,
  quarantined: readonly Quarantined<string>[] = [],
): Promise<FamilyDifference> {
  const differences = await backend?.compare(plan) ?? [];
  return { controller: "network-policy", family: plan.family, quarantined, differences };
}

/** Part of the plan of routing, and what compares it. Without a plan, the own Node is not known. */
interface ComparedPart<Plan> {
  readonly plan: Plan | undefined;
  readonly backend: { compare(plan: Plan): Promise<readonly RoutingDifference[]> };
}

/** Compares what is not disabled. A daemon that cannot be asked is a problem of the result. */
export async function compareRouting(
  { bgp, layer2, pods }: {
    readonly bgp?: ComparedPart<BgpPlan> | undefined;
    readonly layer2: ComparedLayer2;
    readonly pods?: ComparedPart<PodNetworkPlan> | undefined;
  },
): Promise<RoutingComparison> {
  const differences = [...compareLayer2(layer2)];
  try {
    if (pods?.plan) differences.push(...await pods.backend.compare(pods.plan));
    if (!bgp) return { differences };
    if (!bgp.plan) return { differences, problem: "the Node of this node is not known" };
    differences.push(...await bgp.backend.compare(bgp.plan));
    return { differences };
  } catch (error) {
    return { differences, problem: messageOf(error) };
  }
}

/** The interfaces of each address. */
export function interfacesByAddress(
  addresses: readonly InterfaceAddress[],
): ComparedLayer2["found"] {
  const found = new Map<IpAddress, string[]>();
  for (const { address, interfaceName } of addresses) {
    found.getOrInsertComputed(address, () => []).push(interfaceName);
  }
  return found;
}

/** A loop, as far as a comparison must not meet its syncs. */
interface ComparedLoop {
  readonly activity: LoopActivity;
  /** Another value after each sync. */
  readonly lastSync?: unknown;
}

/** Most comparisons while syncs change the machine. */
const MAX_LOOKS = 3;
/** Interval and number of checks whether a sync has ended. */
const SYNC_POLL_MS = 20;
const MOST_SYNC_POLLS = 250;

/** Waits for a running sync, compares, and compares again after a sync that ran meanwhile. */
export async function compareSettled<Found extends { readonly differences: readonly unknown[] }>(
  clock: Pick<Clock, "sleep">,
  loop: ComparedLoop,
  compare: () => Promise<Found>,
): Promise<Found & { readonly isUnsettled?: true }> {
  const isSyncing = () => loop.activity.runningSince !== undefined;
  for (let looks = 1;; looks++) {
    await waitWhile(clock, isSyncing);
    const { lastSync } = loop;
    const difference = await compare();
    const isSettled = !isSyncing() && loop.lastSync === lastSync;
    if (isSettled || difference.differences.length === 0) return difference;
    if (looks === MAX_LOOKS) return { ...difference, isUnsettled: true };
  }
}

async function waitWhile(clock: Pick<Clock, "sleep">, isBusy: () => boolean): Promise<void> {
  for (let polls = 0; isBusy() && polls < MOST_SYNC_POLLS; polls++) {
    await clock.sleep(SYNC_POLL_MS);
  }
}

/**
 * Compares, has the process write what differs, and compares again. Adds an entry to the change log.
 * `repair` returns the operations by name.
 */
export async function repairSettled(
  { clock, changes }: {
    readonly clock: Pick<Clock, "now" | "sleep">;
    readonly changes: Pick<ChangeLog, "repaired">;
  },
  loop: ComparedLoop & { request(): void },
  compare: () => Promise<FamilyDifference>,
  repair: () => Promise<Readonly<Record<string, number>>>,
): Promise<FamilyDifference> {
  const before = await compareSettled(clock, loop, compare);
  const { differences: found } = before;
  if (found.length === 0) return { ...before, repair: { found, operations: {}, refused: [] } };
  const startedAt = clock.now();
  try {
    const operations = await repair();
    // What was left out is to be reported and tried again.
    loop.request();
    await waitWhile(clock, () => loop.activity.pendingSince !== undefined);
    const settled = await compareSettled(clock, loop, compare);
    const known = new Set(before.quarantined.map(({ key, address }) => `${key} ${address}`));
    // A shared object that differed, such as a table, may be of any.
    const differed = new Set<string | undefined>(found.map(({ key }) => key));
    const refused = new Set(
      settled.quarantined.filter(({ key, address }) => !known.has(`${key} ${address}`))
        .map(({ key }) => key).filter((key) => differed.has(undefined) || differed.has(key)),
    );
    const after = { ...settled, repair: { found, operations, refused: [...refused] } };
    changes.repaired(after, { found, left: unrepaired(after), tookMs: clock.now() - startedAt });
    return after;
  } catch (thrown) {
    // The other families are repaired nevertheless.
    const tookMs = clock.now() - startedAt;
    const reason = messageOf(thrown);
    // A process may have rights to serve, and none to write rules or addresses.
    const error = reason.includes("Operation not permitted")
      ? `${reason}; the running kube-relay has no right to write it: it needs CAP_NET_ADMIN`
      : reason;
    changes.repaired(before, { found, left: found, tookMs, error });
    return { ...before, repair: { found, operations: {}, refused: [], error } };
  }
}
