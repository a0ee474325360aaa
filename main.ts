/**
 * kube-relay: the Kubernetes Service proxy for one node. Joins the real edges and the list of
 * backends to the application; everything else is elsewhere.
 *
 * @module
 */
import { createHostChecks } from "./backends/host_checks.ts";
import { BACKENDS, createPacketTraces, ROUTING_BACKENDS } from "./backends/mod.ts";
import { explainCrashes } from "./backends/netfilter/nft/explained_nft.ts";
import { HeldNft } from "./backends/netfilter/nft/held_nft.ts";
import { POLICY_BACKENDS } from "./backends/policy/mod.ts";
import { isWorkerThread, serveAsWorker } from "./backends/userspace/workers/worker_thread.ts";
import { runCommandLine } from "./lib/tools/cli/command_line.ts";
import { ToolsOfRun } from "./lib/tools/control/run_tools.ts";
import type { ProgramDependencies } from "./lib/app/run/run_tools.ts";
import { systemClock } from "./lib/os/clock.ts";
import { systemCommandRunner } from "./lib/os/command_runner.ts";
import { systemNetwork } from "./lib/os/network.ts";
import { RememberedResults } from "./lib/os/remembered_results.ts";
import { openTerminal } from "./lib/os/terminal.ts";
import { createTerminationSource } from "./lib/os/termination_signals.ts";
import { takeStrayOutput, UncaughtErrors } from "./lib/os/uncaught_errors.ts";
import { writeText } from "./lib/os/write_text.ts";

/** The machine as it is. */
export function createDependencies(): ProgramDependencies {
  const clock = systemClock;
  const tools = explainCrashes(systemCommandRunner, clock);
  const commands = new HeldNft({
    commands: new RememberedResults(tools, clock),
    clock,
  });
  return {
    clock: systemClock,
    network: systemNetwork,
    commands,
    random: Math.random,
    uncaught: new UncaughtErrors(),
    spawnWorker,
    backends: BACKENDS,
    policyBackends: POLICY_BACKENDS,
    routingBackends: ROUTING_BACKENDS,
    hostChecks: createHostChecks({
      clock: systemClock,
      network: systemNetwork,
      commands,
      uid: Deno.uid() ?? undefined,
      kernelRelease: Deno.osRelease(),
      env: (name) => Deno.env.get(name),
    }),
    packetTraces: createPacketTraces({
      clock: systemClock,
      network: systemNetwork,
      commands: tools,
      random: Math.random,
      pid: Deno.pid,
    }),
    process: {
      pid: Deno.pid,
      uid: Deno.uid() ?? undefined,
      hostname: Deno.hostname(),
      cores: navigator.hardwareConcurrency,
      kernelRelease: Deno.osRelease(),
      env: (name) => Deno.env.get(name),
      stdoutIsTerminal: Deno.stdout.isTerminal(),
      columns: Deno.stdout.isTerminal() ? Deno.consoleSize().columns : 80,
    },
    createTools: (edges) => new ToolsOfRun(edges),
    takeStrayOutput,
    openTerminal,
    print: (text) => writeText(Deno.stdout, text),
    complain: (text) => writeText(Deno.stderr, text),
  };
}

/**
 * Starts a worker from its program, which is next to this one where both are bundles. An executable of `deno compile` holds only this
 * program, which then is the worker's as well.
 */
function spawnWorker(name: string): Worker {
  const isBundle = !import.meta.url.endsWith(".ts");
  const program = isBundle ? "./userspace_worker.js" : "./backends/userspace_worker.ts";
  const url = Deno.build.standalone ? import.meta.url : new URL(program, import.meta.url).href;
  return new Worker(url, { type: "module", name });
}

/** The self-extracting form hides the caller's folder from Deno, which would read `.npmrc` in it. */
function restoreHome(): void {
  const home = Deno.env.get("KUBE_RELAY_HOME");
  if (home === undefined) return;
  Deno.env.delete("KUBE_RELAY_HOME");
  if (home === "") Deno.env.delete("HOME");
  else Deno.env.set("HOME", home);
}

// Both threads run it as their main module.
if (isWorkerThread()) serveAsWorker();
else if (import.meta.main) {
  restoreHome();
  Deno.exit(await runCommandLine(createDependencies(), Deno.args, createTerminationSource()));
}
