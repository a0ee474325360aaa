/**
 * What a backend that writes rules is made with, whichever tool it writes them by.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
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

/** Its settings. */
export interface RuleBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
  /** What a machine was found to have, for text without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}
