/**
 * What the tables of metrics are made of.
 *
 * @module
 */
import type { BackendMode } from "../proxy/backend.ts";

/** One row of the table. */
export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Meaning, as one sentence without a full stop. */
  readonly help: string;
  /** Labels, each with every value that it can have; one in parentheses is the same for the whole process. */
  readonly labels?: Readonly<Record<string, readonly string[]>>;
  /** Upper bounds of a histogram's buckets, in seconds. */
  readonly buckets?: readonly number[];
  /** Whether every series is there before the first event; only of counters and histograms. @default {true} */
  readonly startsAtZero?: boolean;
  /** The modes that have it. @default all of them */
  readonly modes?: readonly BackendMode[];
}

/** The label that most metrics have, as upstream spells its values. */
export const FAMILY = { ip_family: ["IPv4", "IPv6"] } as const;

/** The modes that write rules into the kernel. */
export const KERNEL_MODES = ["iptables", "ipvs", "nftables"] as const;

/** Whether a mode has a metric. */
export function hasMetric(mode: BackendMode, { modes }: Metric): boolean {
  return modes === undefined || modes.includes(mode);
}

/** The most series that a metric can have. */
export function seriesBound({ labels = {}, buckets }: Metric): number {
  const combinations = Object.values(labels)
    .reduce((product, values) => product * values.length, 1);
  // A histogram has a series for each bucket and for +Inf, sum and count.
  return combinations * (buckets === undefined ? 1 : buckets.length + 3);
}
