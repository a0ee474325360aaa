import type { IpvsBackendOptions } from "../../../backends/ipvs/backend.ts";

/** kube-proxy's defaults, with time for connections of removed endpoints to end. */
export const IPVS_SETTINGS: Omit<IpvsBackendOptions, "family"> = {
  masqueradeBit: 14,
  ipvs: {
    ...{ scheduler: "rr", excludeCIDRs: [], strictARP: false, syncPeriod: 30_000 },
    ...{ tcpTimeout: 0, tcpFinTimeout: 0, udpTimeout: 0 },
  },
  drainTimeoutMs: 900_000,
};
