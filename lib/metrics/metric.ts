import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../proxy/backend.ts";

/** One row of the table. */
export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Meaning, as one sentence without a full stop. */
  readonly help: string;
  /** Labels, each with all its values; one in parentheses is constant for the process. */
  readonly labels?: Readonly<Record<string, readonly string[]>>;
  /** Upper bounds of a histogram's buckets, in seconds. */
  readonly buckets?: readonly number[];
  /**
   * Whether every series exists before the first event; only for counters and histograms. @default
   * {true}
   */
  readonly startsAtZero?: boolean;
  /** Whether it only exists in runs that set it. @default {false} */
  readonly isOnDemand?: boolean;
  /** The modes that have the metric. @default all of them */
  readonly modes?: readonly BackendMode[];
}

/** The label of most metrics, with upstream's spelling. */
export const FAMILY = { ip_family: ["IPv4", "IPv6"] } as const;

/** The modes that write rules into the kernel. */
export const KERNEL_MODES = BACKEND_MODES.filter((mode) => !MODE_TRAITS[mode].forwardsItself);

/** The modes in which kube-relay sees each connection. */
export const FORWARDING_MODES = BACKEND_MODES.filter((mode) => MODE_TRAITS[mode].forwardsItself);

/** Whether a mode has a metric. */
export function hasMetric(mode: BackendMode, { modes }: Metric): boolean {
  return modes === undefined || modes.includes(mode);
}
