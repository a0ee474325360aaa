/** Runs command lines in this process, with the real edges except programs. */
import { runCommandLine } from "../../../lib/tools/cli/command_line.ts";
import type { ProcessInfo } from "../../../lib/app/dependencies.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { createMachine } from "../../../main.ts";
import { THIS_NODE } from "../builders/address_plan.ts";

/** The result of a command line. */
export interface CommandLineResult {
  readonly code: number;
  /** The text on standard output. */
  readonly out: string;
  readonly err: string;
}

/** A machine on which no program may be started. */
export const NO_COMMANDS: CommandRunner = {
  run: (program) => Promise.reject(new Error(`${program} was started`)),
};

/** Runs a command line as root and without environment, on the node of the address plan by default. */
export async function runInProcess(
  argv: readonly string[],
  { commands = NO_COMMANDS, process }: {
    readonly commands?: CommandRunner;
    readonly process?: Partial<ProcessInfo>;
  } = {},
): Promise<CommandLineResult> {
  const texts = { out: "", err: "" };
  const machine = createMachine();
  const code = await runCommandLine(
    {
      ...machine,
      loadAll: async () => ({ ...await machine.loadAll(), commands }),
      process: {
        ...machine.process,
        ...{ hostname: THIS_NODE, uid: 0, columns: 80, env: () => undefined },
        ...process,
      },
      print: (text) => void (texts.out += text),
      complain: (text) => void (texts.err += text),
    },
    argv,
    () => new AbortController().signal,
  );
  return { code, ...texts };
}

/** Runs `render`. */
export function render(args: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(["render", ...args]);
}
