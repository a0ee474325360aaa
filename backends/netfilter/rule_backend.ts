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
  /** Called when objects in the kernel were missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** Its settings. */
export interface RuleBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  /** Maximum interval of checks for a flush, milliseconds. */
  readonly syncPeriodMs: number;
  /** The facts of a machine, for rendering without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}
