/**
 * The settings of NetworkPolicy: the block `networkPolicy` of the configuration. It is an extension:
 * kube-proxy reads a file that has it, and warns of an unknown field.
 *
 * @module
 */
import { type BlockValues, duration, flag, integer, text } from "./configuration_fields.ts";

/** The valid values of some fields; the first one is the default. */
export const NETWORK_POLICY_CHOICES = {
  mode: ["auto", "nftables", "iptables"],
  start: ["open", "closed"],
  deny: ["reject", "drop"],
} as const;

/** The largest valid numbers of some fields. */
export const NETWORK_POLICY_LIMITS = {
  /** 100 per second; a log of more would lose packets. */
  logPerMinute: 6_000,
  /** A group has 16 bits in the kernel. */
  logGroup: 65_535,
  /** Of a sync of Services too. */
  minSyncPeriod: 3_600_000,
} as const;

/** The fields of the block. */
export const NETWORK_POLICY_ENTRIES = {
  enabled: flag(),
  mode: text(NETWORK_POLICY_CHOICES.mode[0]),
  start: text(NETWORK_POLICY_CHOICES.start[0]),
  deny: text(NETWORK_POLICY_CHOICES.deny[0]),
  // Denied packets of each pod that are logged per minute; 0 = none.
  logPerMinute: integer(0),
  // Group of NFLOG: that of kube-router, so that an existing collector keeps working. There is no option
  // for the kernel's log, because its prefix in iptables has only 29 characters, too few for the name of a
  // pod, and tenants could flood the log of the node.
  logGroup: integer(100),
  // Whether open connections end if the policies no longer allow them.
  cutConnections: flag(true),
  // Of its own: a policy shall not wait for the syncs of Services.
  minSyncPeriod: duration("20ms"),
  // Empty = the connection of Services.
  kubeconfig: text(),
};

export type NetworkPolicyConfiguration = BlockValues<typeof NETWORK_POLICY_ENTRIES>;
