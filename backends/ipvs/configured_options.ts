/**
 * From the configuration, as kube-proxy's file has it, to the options of the backend.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { IpvsBackendOptions } from "./backend_options.ts";
import { DEFAULT_SCHEDULER, SCHEDULERS, tryParseScheduler } from "./scheduler.ts";

/** The fields of the configuration that are read. Times are milliseconds. */
export interface IpvsConfigurationFields {
  readonly scheduler: string;
  readonly excludeCIDRs: readonly string[];
  readonly strictARP: boolean;
  readonly tcpTimeout: number;
  readonly tcpFinTimeout: number;
  readonly udpTimeout: number;
  readonly syncPeriod: number;
}

/** What is known beside them. */
interface IpvsOptionsContext {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly drainTimeoutMs: number;
}

/** The options. A scheduler that there is not is the default; {@linkcode unknownScheduler} tells. */
export function ipvsOptionsOf(
  ipvs: IpvsConfigurationFields,
  { family, masqueradeBit, drainTimeoutMs }: IpvsOptionsContext,
): IpvsBackendOptions {
  const { tcpTimeout: tcp, tcpFinTimeout: tcpFin, udpTimeout: udp } = ipvs;
  return {
    family,
    masqueradeBit,
    scheduler: tryParseScheduler(ipvs.scheduler) ?? DEFAULT_SCHEDULER,
    ...unknownScheduler(ipvs.scheduler),
    // The configuration was validated before.
    excludeCidrs: ipvs.excludeCIDRs.map(tryParseCidr).filter((cidr): cidr is Cidr =>
      cidr !== undefined
    ),
    strictArp: ipvs.strictARP,
    timeouts: { tcp, tcpFin, udp },
    syncPeriodMs: ipvs.syncPeriod,
    drainTimeoutMs,
  };
}

/** Why a scheduler cannot be had, as a row that the probe and the start tell. */
function unknownScheduler(name: string): Pick<IpvsBackendOptions, "problem"> {
  if (tryParseScheduler(name) !== undefined) return {};
  return { problem: `there is no scheduler '${name}', only ${SCHEDULERS.join(", ")}` };
}
