/**
 * What the ipvs backend is made with.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Network } from "../../lib/os/network.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import type { Scheduler } from "./scheduler.ts";
import type { ServerRecordFile } from "./server_record_file.ts";

/** The edges of the ipvs backend. */
export interface IpvsBackendDependencies extends RuleBackendDependencies {
  readonly network: Network;
  /** What this family's servers are, where the kernel does not tell; read and written once it is started. */
  readonly recordFile: ServerRecordFile;
}

/** Settings of the ipvs backend. Times are milliseconds. */
export interface IpvsBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly scheduler: Scheduler;
  readonly excludeCidrs: readonly Cidr[];
  readonly strictArp: boolean;
  /** 0 leaves what the kernel has. */
  readonly timeouts: { readonly tcp: number; readonly tcpFin: number; readonly udp: number };
  /** How often the kernel is looked at. */
  readonly syncPeriodMs: number;
  /** Longest time for the connections of a removed endpoint to end; 0 = as long as they like. */
  readonly drainTimeoutMs: number;
  /** Why it cannot be started: a setting that makes no sense. */
  readonly problem?: string;
  /** What a machine was found to have, for text without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}
