/**
 * The edges to this machine that only some verbs need. `main.ts` loads this module, and with it all
 * modes, when such a verb asks for it.
 *
 * @module
 */
import type { Clock } from "../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../lib/os/command_runner.ts";
import { type Network, systemNetwork } from "../lib/os/network.ts";
import { RememberedResults } from "../lib/os/remembered_results.ts";
import { takeStrayOutput, UncaughtErrors } from "../lib/os/uncaught_errors.ts";
import type { HostChecks } from "../lib/proxy/host_checks.ts";
import { createHostChecks } from "./host_checks.ts";
import { BACKENDS, createPacketTraces, ROUTING_BACKENDS } from "./mod.ts";
import { explainCrashes } from "./netfilter/nft/explained_nft.ts";
import { HeldNft } from "./netfilter/nft/held_nft.ts";
import { POLICY_BACKENDS } from "./policy/mod.ts";

export { serveAsDataProcess } from "./userspace/workers/data_process.ts";
export { serveAsWorker } from "./userspace/workers/worker_thread.ts";

interface MachineEdges {
  readonly network: Network;
  readonly commands: CommandRunner;
  readonly random: () => number;
  readonly uncaught: UncaughtErrors;
  readonly takeStrayOutput: typeof takeStrayOutput;
  readonly backends: typeof BACKENDS;
  readonly policyBackends: typeof POLICY_BACKENDS;
  readonly routingBackends: typeof ROUTING_BACKENDS;
  readonly hostChecks: HostChecks;
  readonly packetTraces: ReturnType<typeof createPacketTraces>;
}

/** Creates the edges. Nothing is started or read. */
export function createMachineEdges(
  clock: Clock,
  { pid, uid, kernelRelease, env }: {
    readonly pid: number;
    readonly uid: number | undefined;
    readonly kernelRelease: string;
    readonly env: (name: string) => string | undefined;
  },
): MachineEdges {
  const tools = explainCrashes(systemCommandRunner, clock);
  const commands = new HeldNft({ commands: new RememberedResults(tools, clock), clock });
  const network = systemNetwork;
  const random = Math.random;
  return {
    ...{ network, commands, random },
    uncaught: new UncaughtErrors(),
    takeStrayOutput,
    backends: BACKENDS,
    policyBackends: POLICY_BACKENDS,
    routingBackends: ROUTING_BACKENDS,
    hostChecks: createHostChecks({ clock, network, commands, uid, kernelRelease, env }),
    packetTraces: createPacketTraces({ clock, network, commands: tools, random, pid }),
  };
}
