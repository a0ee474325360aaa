/**
 * kube-relay: the Kubernetes Service proxy for one node. Joins the real edges and the list of
 * backends to the application; everything else is elsewhere.
 *
 * What is imported here is loaded by every command line, so it is little: the modes are loaded when a
 * verb asks for them.
 *
 * @module
 */
import type { Machine } from "./lib/app/run/run_tools.ts";
import { systemClock as clock } from "./lib/os/clock.ts";
import { openTerminal } from "./lib/os/terminal.ts";
import { createTerminationSource } from "./lib/os/termination_signals.ts";
import { writeText } from "./lib/os/write_text.ts";
import { runCommandLine } from "./lib/tools/cli/command_line.ts";

/** The machine as it is. */
export function createMachine(): Machine {
  const process = {
    pid: Deno.pid,
    uid: Deno.uid() ?? undefined,
    hostname: Deno.hostname(),
    cores: navigator.hardwareConcurrency,
    kernelRelease: Deno.osRelease(),
    env: (name: string) => Deno.env.get(name),
    stdoutIsTerminal: Deno.stdout.isTerminal(),
    stderrIsTerminal: Deno.stderr.isTerminal(),
    columns: Deno.stdout.isTerminal() ? Deno.consoleSize().columns : 80,
  };
  const edges = {
    ...{ clock, process, openTerminal },
    print: (text: string) => writeText(Deno.stdout, text),
    complain: (text: string) => writeText(Deno.stderr, text),
  };
  return {
    ...edges,
    async loadAll() {
      const { createMachineEdges } = await import("./backends/machine.ts");
      return { ...createMachineEdges(clock, process), ...edges, spawnWorker };
    },
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
if ("DedicatedWorkerGlobalScope" in globalThis) {
  (await import("./backends/machine.ts")).serveAsWorker();
} else if (import.meta.main) {
  restoreHome();
  Deno.exit(await runCommandLine(createMachine(), Deno.args, createTerminationSource()));
}
