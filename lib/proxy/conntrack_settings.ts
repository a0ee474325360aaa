import type { HostSettingRequest } from "./host_setting.ts";

/** The field, with upstream's names. Times are milliseconds; 0 leaves the kernel's value. */
export interface ConntrackLimits {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedTimeout: number;
  readonly tcpCloseWaitTimeout: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeout: number;
  readonly udpStreamTimeout: number;
}

/**
 * More entries than this cost memory without benefit (upstream since 1.36,
 * kubernetes/kubernetes#137002).
 */
const MOST_ENTRIES = 1_048_576;
/** The kernel's own ratio of entries to hash buckets. */
const ENTRIES_PER_BUCKET = 4;

/**
 * Maximum size of the connection table for this many CPUs; `undefined` keeps the kernel's value.
 *
 * The cap also overrides `min`, as upstream. If `maxPerCore` is set, the result is never
 * `undefined`.
 */
export function conntrackMax(
  { maxPerCore, min }: Pick<ConntrackLimits, "maxPerCore" | "min">,
  cpus: number,
): number | undefined {
  if (maxPerCore <= 0) return undefined;
  const scaled = maxPerCore * cpus;
  return scaled > MOST_ENTRIES ? MOST_ENTRIES : Math.max(scaled, min);
}

/**
 * The requests, in upstream's order. The hash size is set by a sysctl: this process may not write
 * upstream's file, `/sys/module/nf_conntrack/parameters/hashsize`, which holds the same number.
 */
export function conntrackSettings(
  limits: ConntrackLimits,
  cpus: number,
): readonly HostSettingRequest[] {
  const max = conntrackMax(limits, cpus);
  return [
    ...(max === undefined ? [] : [
      request("nf_conntrack_max", max, "track the connections of every Service"),
      {
        ...request(
          "nf_conntrack_buckets",
          Math.floor(max / ENTRIES_PER_BUCKET),
          "find connections fast when the table is full",
        ),
        atLeast: true,
      },
    ]),
    ...seconds("tcp_timeout_established", limits.tcpEstablishedTimeout),
    ...seconds("tcp_timeout_close_wait", limits.tcpCloseWaitTimeout),
    ...(limits.tcpBeLiberal
      ? [request("nf_conntrack_tcp_be_liberal", 1, "let packets outside of the TCP window pass")]
      : []),
    ...seconds("udp_timeout", limits.udpTimeout),
    ...seconds("udp_timeout_stream", limits.udpStreamTimeout),
  ];
}

function request(key: string, value: number, purpose: string): HostSettingRequest {
  return { name: `net.netfilter.${key}`, value: String(value), purpose };
}

function seconds(key: string, milliseconds: number): readonly HostSettingRequest[] {
  if (milliseconds <= 0) return [];
  // Upstream rounds a fraction of a second to 0, with which the kernel drops connections at once.
  const value = Math.max(1, Math.floor(milliseconds / 1000));
  return [request(`nf_conntrack_${key}`, value, "keep idle connections as long as was asked for")];
}
