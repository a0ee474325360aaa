import { type Cidr, tryParseCidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Network } from "../../lib/os/network.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import { DEFAULT_SCHEDULER, type Scheduler, SCHEDULERS, tryParseScheduler } from "./scheduler.ts";

/** The edges of the ipvs backend. */
export interface IpvsBackendDependencies extends RuleBackendDependencies {
  readonly network: Network;
}

/** Settings of the ipvs backend. Times are milliseconds. */
export interface IpvsBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly scheduler: Scheduler;
  readonly excludeCidrs: readonly Cidr[];
  readonly strictArp: boolean;
  /** 0 keeps the kernel's value. */
  readonly timeouts: { readonly tcp: number; readonly tcpFin: number; readonly udp: number };
  /** The interval of checks of the kernel. */
  readonly syncPeriodMs: number;
  /** Maximum time for the connections of a removed endpoint to end, ms; 0 = unlimited. */
  readonly drainTimeoutMs: number;
  /** The reason why it cannot be started: an invalid setting. */
  readonly problem?: string;
  /** The facts of a machine, for rendering without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}

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

interface IpvsOptionsContext {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly drainTimeoutMs: number;
}

/**
 * Derives the options. An unknown scheduler is replaced by the default; {@linkcode
 * unknownScheduler} reports it.
 */
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

/** Returns the reason why a scheduler cannot be used, as a row of the probe and of the start. */
function unknownScheduler(name: string): Pick<IpvsBackendOptions, "problem"> {
  if (tryParseScheduler(name) !== undefined) return {};
  return { problem: `there is no scheduler '${name}', only ${SCHEDULERS.join(", ")}` };
}
