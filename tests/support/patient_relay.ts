/**
 * A program: kube-relay where everything is slow. Its first argument is how many times longer than
 * usual the programs that it runs may take, all others are kube-relay's.
 *
 * @module
 */
import { runCommandLine } from "../../lib/app/cli/command_line.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { createTerminationSource } from "../../lib/os/termination_signals.ts";
import { createDependencies } from "../../main.ts";

/** What the runner itself has for a command that is not told otherwise. */
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

if (import.meta.main) {
  const [factor = "1", ...args] = Deno.args;
  const dependencies = createDependencies();
  const commands = patientRunner(dependencies.commands, Number(factor));
  Deno.exit(await runCommandLine({ ...dependencies, commands }, args, createTerminationSource()));
}
