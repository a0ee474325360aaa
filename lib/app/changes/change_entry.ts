/**
 * What the change log holds: which change of which object caused what, and how long it took.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { RuleName } from "../../proxy/rule_names.ts";

/** What can cause a sync. The last three are no objects of the API. */
export type CauseKind =
  | "Service"
  | "EndpointSlice"
  | "Endpoints"
  | "Node"
  | "ServiceCIDR"
  | "addresses"
  | "configuration";

/** What happened to an object or to a ServicePort. */
export type ChangeAction = "added" | "updated" | "deleted";

/** One object that changed, however often, before a sync. */
export interface ChangeCause {
  readonly kind: CauseKind;
  /** `namespace/name`, or the name alone; empty for what has none. */
  readonly name: string;
  readonly action: ChangeAction;
  /** What is different, e.g. `type ClusterIP -> NodePort`. */
  readonly words: readonly string[];
  /** Changes of it that came together. */
  readonly count: number;
  /** When the first of them was seen, RFC 3339. */
  readonly seenAt: string;
}

/** What became different in the plan of one ServicePort. */
export interface ChangeEffect {
  /** `namespace/name:port/PROTOCOL`. */
  readonly servicePort: string;
  readonly action: ChangeAction;
  /** E.g. `2 -> 3 endpoints`. */
  readonly words: readonly string[];
  /**
   * The rules by which it is served at the moment of asking: none, if it is gone or left out. Absent in
   * the log itself, and of older changes.
   */
  readonly rules?: readonly RuleName[];
}

/** Tracked UDP flows of one ServicePort that the kernel was made to forget. */
interface CleanedService {
  readonly servicePort: string;
  readonly flows: number;
}

/**
 * What came after a sync: UDP flows to endpoints that it took away go on past all rules, until the
 * kernel forgets them.
 */
export interface CleanedFlows {
  readonly services: readonly CleanedService[];
  /** Flows of other ServicePorts, which are only counted. */
  readonly more: number;
  /** To go through the table and to delete, failed attempts too. */
  readonly tookMs: number;
  /** Attempts that failed. */
  readonly failures: number;
  /** Why the last one failed, while it is tried again. */
  readonly error?: string;
}

/** What all entries have. */
interface EntryBase {
  /** Counts up from 1 by entry. */
  readonly sequence: number;
  /** When it was over, or was last tried or seen; RFC 3339. */
  readonly at: string;
}

/** What one sync, or a burst of them, brought into effect for one family. */
export interface SyncEntry extends EntryBase {
  readonly kind: "sync";
  readonly family: IpFamily;
  /** `failed`: not in effect yet; it is tried again, and the entry changes when it succeeds. */
  readonly outcome: "applied" | "failed";
  /** The first sync of the family, which brings all there is. */
  readonly first?: true;
  readonly causes: readonly ChangeCause[];
  /** Changes that are only counted, by kind of object. */
  readonly moreCauses: Readonly<Record<string, number>>;
  readonly effects: readonly ChangeEffect[];
  /** ServicePorts that are only counted, by what happened to them. */
  readonly moreEffects: Readonly<Record<string, number>>;
  /** Syncs that this entry stands for. */
  readonly syncs: number;
  /** Whether everything was compared; absent while it fails. */
  readonly full?: boolean;
  /** What was done to the data plane, by name. */
  readonly operations: Readonly<Record<string, number>>;
  /** From the first cause until the sync began, in milliseconds. */
  readonly queuedMs: number;
  /** To work out what has to hold. */
  readonly planMs: number;
  /** To bring the data plane there. */
  readonly applyMs: number;
  /** From the first cause until it was in effect. */
  readonly totalMs: number;
  /** Attempts that failed. */
  readonly failures: number;
  /** Why the last one failed. */
  readonly error?: string;
  /** It took far longer than others lately. */
  readonly slow?: true;
  /** Absent where there were none. */
  readonly flows?: CleanedFlows;
}

/** A ServicePort, or an address of it, that went into quarantine or came out. */
export interface QuarantineEntry extends EntryBase {
  readonly kind: "quarantine";
  readonly family: IpFamily;
  readonly direction: "in" | "out";
  readonly servicePort: string;
  readonly address?: string;
  readonly reason: string;
}

/** Something of ours was found missing or altered. */
export interface DriftEntry extends EntryBase {
  readonly kind: "drift";
  readonly family: IpFamily;
  /** What it was, as in the metrics. */
  readonly object: string;
  readonly found: number;
  readonly repaired: number;
  /** Times that it was found in a row. */
  readonly times: number;
}

/** What a repair did to one kind of object. */
export interface RepairedObjects {
  /** As `diff` names it, e.g. `rule`, `map element`. */
  readonly object: string;
  readonly found: number;
  readonly mended: number;
}

/** Somebody ran `kube-relay diff --repair`, which told so: who it was is by its own word. */
export interface RepairEntry extends EntryBase {
  readonly kind: "repair";
  readonly family: IpFamily;
  /** Who ran it last: a user by number, where one is known, and the process. */
  readonly uid?: number;
  readonly pid: number;
  readonly objects: readonly RepairedObjects[];
  /** To compare, to write and to compare again. */
  readonly tookMs: number;
  /** Repairs that followed each other. */
  readonly times: number;
  /** Why the last one failed: then it is not known what it wrote. */
  readonly error?: string;
}

/** The configuration file was taken up while running. */
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
  | ConfigurationEntry;

/** How one sync went, for a plot. */
export interface SyncTime {
  readonly family: IpFamily;
  /** At its end, in milliseconds since 1970. */
  readonly at: number;
  readonly durationMs: number;
  readonly outcome: "applied" | "failed";
}

/** The answer of the control socket to `/changes`. */
export interface ChangesReport {
  /** Oldest first. */
  readonly entries: readonly ChangeEntry[];
  /** Entries that the bounds have pushed out since the start. */
  readonly forgotten: number;
  /** Oldest first. */
  readonly syncs: readonly SyncTime[];
}
