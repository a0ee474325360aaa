import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";

/** The dependencies of packet watches, and a name that distinguishes concurrent traces. */
export interface TraceEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Network;
  /** The process id and a number: containers on one network may have the same process ids. */
  readonly id: string;
}
