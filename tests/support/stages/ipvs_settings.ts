import type { IpvsBackendOptions } from "../../../backends/ipvs/backend_options.ts";

/** kube-proxy's defaults, with time for connections of removed endpoints to end. */
export const IPVS_SETTINGS: Omit<IpvsBackendOptions, "family"> = {
  masqueradeBit: 14,
  scheduler: "rr",
  excludeCidrs: [],
  strictArp: false,
  timeouts: { tcp: 0, tcpFin: 0, udp: 0 },
  syncPeriodMs: 30_000,
  drainTimeoutMs: 900_000,
};
