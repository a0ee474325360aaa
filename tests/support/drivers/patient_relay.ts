/**
 * A program: kube-relay on a slow machine. Its first argument is the factor for the time limits of
 * programs, the second a folder for cached results. All others are kube-relay's.
 */
import { runCommandLine } from "../../../lib/tools/cli/command_line.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { createTerminationSource } from "../../../lib/os/termination_signals.ts";
import { writeFile } from "../../../lib/os/write_file.ts";
import type { HostChecks } from "../../../lib/proxy/host_checks.ts";
import { createMachine } from "../../../main.ts";

/** The default time limit of the command runner. */
const USUAL_MS = 30_000;

function patientRunner(commands: CommandRunner, factor: number): CommandRunner {
  return {
    run: (program, args, options = {}) =>
      commands.run(program, args, {
        ...options,
        timeoutMs: (options.timeoutMs ?? USUAL_MS) * factor,
      }),
  };
}

/**
 * Probes each mode in the first process only: thirty programs take ten seconds where all is slow, and
 * kernel and tools stay the same. The tests of the probes do without this.
 */
function rememberProbes(hostChecks: HostChecks, folder: string): HostChecks {
  return {
    ...hostChecks,
    async probeMode(mode, options) {
      const file = `${folder}/probe-${mode}.json`;
      const known = await Deno.readTextFile(file).catch(() => undefined);
      if (known !== undefined) return JSON.parse(known);
      const results = await hostChecks.probeMode(mode, options);
      // Two nodes may probe at the same time; each has a temporary file of its own.
      await writeFile(file, "public", JSON.stringify(results));
      return results;
    },
  };
}

if (import.meta.main) {
  const [factor = "1", folder = "", ...args] = Deno.args;
  const machine = createMachine();
  const loadAll = async () => {
    const edges = await machine.loadAll();
    const commands = patientRunner(edges.commands, Number(factor));
    return { ...edges, commands, hostChecks: rememberProbes(edges.hostChecks, folder) };
  };
  const patient = { ...machine, loadAll };
  Deno.exit(await runCommandLine(patient, args, createTerminationSource()));
}
