import type { ControllerName } from "../../engine/loop_id.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { EndpointHealth } from "../../proxy/service_mode.ts";

export type ChangeAction = "added" | "updated" | "deleted";

/** One object that changed, once or more, before a sync. */
export interface ChangeCause {
  /** A kind of the API, or what else can cause a sync: `addresses`, `configuration`. */
  readonly kind: string;
  /** `namespace/name`, or the name alone; empty for kinds without a name. */
  readonly name: string;
  readonly action: ChangeAction;
  /** E.g. `type ClusterIP -> NodePort`. */
  readonly details: readonly string[];
  /** Number of changes. */
  readonly count: number;
  /** The time of the first change, RFC 3339. */
  readonly seenAt: string;
}

/** The changed item of a plan. One of the two fields is set. */
export interface ChangedItem {
  /** Names of ServicePorts: `namespace/name:port/PROTOCOL`. */
  readonly servicePort?: string;
  /** An item of another controller. */
  readonly item?: string;
}

/** Objects of one kind and name that serve a ServicePort. */
export interface RuleName {
  /** As in "Carried by" of `explain`, e.g. `rule` or `map element`. */
  readonly object: string;
  /** The chain of a rule, the map of an element. */
  readonly name: string;
  readonly count: number;
}

/** A change in the plan of one item. */
export interface ChangeEffect extends ChangedItem {
  readonly action: ChangeAction;
  /** E.g. `2 -> 3 endpoints`. */
  readonly details: readonly string[];
  /**
   * The rules that serve the ServicePort at the time of the request; empty if it no longer exists. Absent in
   * the log itself, and for older changes.
   */
  readonly rules?: readonly RuleName[];
}

/** Removed UDP flows of one ServicePort. */
interface CleanedService {
  readonly servicePort: string;
  readonly flows: number;
}

/**
 * UDP flows that were removed from the kernel's connection tracking after a sync: flows to endpoints that
 * the sync removed would otherwise continue past all rules.
 */
export interface CleanedFlows {
  readonly services: readonly CleanedService[];
  /** Number of flows of other ServicePorts. */
  readonly more: number;
  /** To search the table and delete, failed attempts included. */
  readonly tookMs: number;
  /** Failed attempts. */
  readonly failures: number;
  /** The reason of the last failed attempt; absent after a success. */
  readonly error?: string;
}

interface EntryBase {
  /** From 1. */
  readonly sequence: number;
  /** The time at which it ended, was last attempted or was last seen; RFC 3339. */
  readonly at: string;
}

/** The loop that an entry is about. */
export interface EntryLoop {
  /** Absent for the controller of Services. */
  readonly controller?: ControllerName;
  readonly family: IpFamily;
}

/** One sync, or a burst of syncs, of one family. */
export interface SyncEntry extends EntryBase, EntryLoop {
  readonly kind: "sync";
  /** `failed` becomes `applied` when a later attempt succeeds. */
  readonly outcome: "applied" | "failed";
  /** The first sync of the family. */
  readonly first?: true;
  readonly causes: readonly ChangeCause[];
  /** Numbers of further changes, by kind of object. */
  readonly moreCauses: Readonly<Record<string, number>>;
  readonly effects: readonly ChangeEffect[];
  /** Numbers of further items, by action. */
  readonly moreEffects: Readonly<Record<string, number>>;
  /** Number of syncs in this entry. */
  readonly syncs: number;
  /** Whether everything was compared; absent for a failure. */
  readonly full?: boolean;
  /** Numbers of operations on the data plane, by name. */
  readonly operations: Readonly<Record<string, number>>;
  /** From the first cause to the begin of the sync, in milliseconds. */
  readonly queuedMs: number;
  /** To compute the plan. */
  readonly planMs: number;
  /** To apply the plan. */
  readonly applyMs: number;
  /** From the first cause to the end of the sync. */
  readonly totalMs: number;
  /** Failed attempts. */
  readonly failures: number;
  /** The reason of the last failed attempt. */
  readonly error?: string;
  /** Whether it took far longer than the other recent ones. */
  readonly slow?: true;
  readonly flows?: CleanedFlows;
}

/** An item, or one of its addresses, that went into quarantine or came out of it. */
export interface QuarantineEntry extends EntryBase, EntryLoop, ChangedItem {
  readonly kind: "quarantine";
  readonly direction: "in" | "out";
  readonly address?: string;
  readonly reason: string;
}

/** Objects of kube-relay that another program removed or changed. */
export interface DriftEntry extends EntryBase, EntryLoop {
  readonly kind: "drift";
  /** The kind, as in the metrics. */
  readonly object: string;
  readonly found: number;
  readonly repaired: number;
  /** Number of successive findings. */
  readonly times: number;
}

/** A repair of one kind of object. */
export interface RepairedObjects {
  /** As `diff` names it, e.g. `rule`, `map element`. */
  readonly object: string;
  readonly found: number;
  readonly repaired: number;
}

/** A run of `kube-relay diff --repair`, as it reported itself. */
export interface RepairEntry extends EntryBase, EntryLoop {
  readonly kind: "repair";
  /** The last user, if known. */
  readonly uid?: number;
  readonly pid: number;
  readonly objects: readonly RepairedObjects[];
  /** To compare, write and compare again. */
  readonly tookMs: number;
  /** Number of successive repairs. */
  readonly times: number;
  /** The reason why the last repair failed; it may have written some of its changes. */
  readonly error?: string;
}

/** An endpoint that became unhealthy, was ejected, or returned. */
interface HealthChange {
  readonly servicePort: string;
  readonly endpoint: string;
  readonly state: EndpointHealth["state"];
  readonly reason?: string;
}

/** Changes of the health of endpoints, in one burst. */
export interface HealthEntry extends EntryBase, EntryLoop {
  readonly kind: "health";
  /** The newest ones, oldest first. */
  readonly changes: readonly HealthChange[];
  /** Number of earlier ones. */
  readonly more: number;
}

/** A reload of the configuration file. */
export interface ConfigurationEntry extends EntryBase {
  readonly kind: "configuration";
  readonly fields: readonly string[];
}

/** One line of the change log. */
export type ChangeEntry =
  | SyncEntry
  | QuarantineEntry
  | DriftEntry
  | RepairEntry
  | HealthEntry
  | ConfigurationEntry;

/** The duration of one sync. */
export interface SyncTime extends EntryLoop {
  /** The end, in milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
  readonly outcome: "applied" | "failed";
}

/** The answer of the control socket to `/changes`. */
export interface ChangesReport {
  /** Oldest first. */
  readonly entries: readonly ChangeEntry[];
  /** Number of entries that were pushed out since the start. */
  readonly forgotten: number;
  /** Oldest first. */
  readonly syncs: readonly SyncTime[];
}
