/**
 * What a backend that writes rules is made with, whichever tool it writes them by.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { DriftFigures } from "./drift_figures.ts";

/** Its edges. */
export interface RuleBackendDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  /** Told when something of ours was found missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** What may change while the process runs. */
export interface NodeSettings {
  readonly nodePortAddresses: NodePortAddresses;
  /** The node's address of this family; absent while it is not known. */
  readonly nodeIp?: IpAddress;
}

/** Its settings. */
export interface RuleBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
  /** What the configuration and the Node say now. */
  readonly node: () => NodeSettings;
  /** What a machine was found to have, for text without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}
