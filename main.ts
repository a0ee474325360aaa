/**
 * kube-relay: the Kubernetes Service proxy for one node. Joins the real edges and the list of
 * backends to the application; everything else is elsewhere.
 *
 * What is imported here is loaded by every command line, so it is little: the modes are loaded when a
 * verb asks for them.
 *
 * @module
 */
import "./ffi_permission.ts";
import type { Machine } from "./lib/app/run/run_tools.ts";
import { systemClock as clock } from "./lib/os/clock.ts";
import { DATA_PROCESS, DATA_PROCESS_FLAGS } from "./lib/os/data_process_protocol.ts";
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
      const dataProgram = dataProgramOf(Deno.execPath());
      return { ...createMachineEdges(clock, process), ...edges, spawnWorker, dataProgram };
    },
  };
}

/**
 * Starts a worker from its program, which is next to this one where both are bundles. An executable of `deno compile` holds only this
 * program, which then is the worker's as well.
 */
function spawnWorker(name: string): Worker {
  return new Worker(workerProgram(), { type: "module", name });
}

function workerProgram(): string {
  const program = isBundle() ? "./userspace_worker.js" : "./backends/userspace_worker.ts";
  return Deno.build.standalone ? import.meta.url : new URL(program, import.meta.url).href;
}

function isBundle(): boolean {
  return !import.meta.url.endsWith(".ts");
}

/**
 * The command line of a data process, to which arguments are added. It gets nothing of the environment, which may
 * have secrets, and reads nothing outside the folder of the bundle, as the self-extracting form.
 */
function dataProgramOf(deno: string): readonly string[] {
  if (Deno.build.standalone) return ["env", "-i", deno];
  const flags = [
    ...["-q", "--unstable-net", "--no-check", "--cached-only"],
    "--v8-flags=--max-semi-space-size=2,--heap-growing-percent=30",
  ];
  const program = new URL(workerProgram()).pathname;
  if (!isBundle()) return [deno, "run", ...flags, ...DATA_PROCESS_FLAGS, program];
  const folder = new URL(".", import.meta.url).pathname;
  return [
    ...["env", "-i", `HOME=${folder}`, `DENO_DIR=${folder}v8`, "DENO_NO_UPDATE_CHECK=1"],
    ...[deno, "run", ...flags, "--no-config", "--no-lock", "--no-remote", "--no-npm"],
    ...[...DATA_PROCESS_FLAGS, program],
  ];
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
} else if (Deno.build.standalone && Deno.args[0] === DATA_PROCESS) {
  (await import("./backends/machine.ts")).serveAsDataProcess(Deno.args.slice(1));
} else if (import.meta.main) {
  restoreHome();
  Deno.exit(await runCommandLine(createMachine(), Deno.args, createTerminationSource()));
}
