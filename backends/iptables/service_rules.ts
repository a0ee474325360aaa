import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { Rule } from "../netfilter/iptables/iptables_objects.ts";
import type { TreeId } from "./base_chains.ts";

/** Rules for one path of one tree. */
export interface ServiceEntry {
  readonly tree: TreeId;
  readonly path: string;
  /** Orders the entries of one path; the lowest is first. */
  readonly rank: string;
  readonly rules: readonly Rule[];
}

/** A chain that only this ServicePort has, in table nat. */
export interface ServiceChain {
  readonly name: string;
  readonly rules: readonly Rule[];
}

/** A ServicePort, rendered. */
export interface ServiceRules {
  readonly entries: readonly ServiceEntry[];
  readonly chains: readonly ServiceChain[];
  /** Parts that cannot be expressed. */
  readonly quarantined: readonly Quarantined[];
}
