/**
 * What one ServicePort needs, in pieces that the layout puts in place.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { Rule } from "../netfilter/iptables/iptables_objects.ts";
import type { TreeId } from "./base_chains.ts";

/** Rules for one path of one tree. */
export interface ServiceEntry {
  readonly tree: TreeId;
  readonly path: string;
  /** Decides between two claims to one path: the lower goes first. */
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
  /** What could not be expressed. */
  readonly quarantined: readonly Quarantined[];
}
