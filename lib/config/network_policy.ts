/**
 * The settings of NetworkPolicy: the block `networkPolicy` of the configuration. It is an extension:
 * kube-proxy reads a file that has it, and warns of an unknown field.
 *
 * @module
 */
import type { Expect } from "./expectation.ts";
import { checkRange } from "./expectation.ts";
import { didYouMean } from "./nearest_name.ts";

/** The block. */
export interface NetworkPolicyConfiguration {
  readonly enabled: boolean;
  /** As written; one of {@linkcode NETWORK_POLICY_CHOICES}, as `start` and `deny`. */
  readonly mode: string;
  readonly start: string;
  readonly deny: string;
  /** Denied packets of each pod that are logged per minute; 0 = none. */
  readonly logPerMinute: number;
  /**
   * Group of NFLOG. The kernel's own log is not offered: iptables takes a prefix of 29 characters for
   * it, which is no room for the name of a pod, and tenants could flood the log of the node.
   */
  readonly logGroup: number;
  /** Whether connections end that the policies no longer allow. */
  readonly cutConnections: boolean;
  /** Path of a kubeconfig; empty = the connection of Services. */
  readonly kubeconfig: string;
}

/** The words that some fields take; the first one is the default. */
export const NETWORK_POLICY_CHOICES = {
  mode: ["auto", "nftables", "iptables"],
  start: ["open", "closed"],
  deny: ["reject", "drop"],
} as const;

/** The largest numbers that some fields take. */
export const NETWORK_POLICY_LIMITS = {
  /** 100 a second: a log that has to keep more is one that loses packets. */
  logPerMinute: 6_000,
  /** The kernel has 16 bits for it. */
  logGroup: 65_535,
} as const;

/** Checks the block, also where it is turned off: it may be turned on by a flag. */
export function checkNetworkPolicy(policy: NetworkPolicyConfiguration, expect: Expect): void {
  for (const field of ["mode", "start", "deny"] as const) {
    const words: readonly string[] = NETWORK_POLICY_CHOICES[field];
    const value = policy[field];
    expect(
      words.includes(value),
      `networkPolicy.${field}`,
      `Expected one of ${words.join(", ")}, found '${value}'${didYouMean(value, words)}`,
    );
  }
  for (const field of ["logPerMinute", "logGroup"] as const) {
    const bounds = { from: 0, to: NETWORK_POLICY_LIMITS[field] };
    checkRange(expect, `networkPolicy.${field}`, { value: policy[field], ...bounds });
  }
}
