/**
 * Returns the output of `kube-relay render`, run in this process with the real edges except
 * programs, which it must not start.
 *
 * @module
 */
import { runCommandLine } from "../../../lib/app/cli/command_line.ts";
import { createDependencies } from "../../../main.ts";
import { THIS_NODE } from "../builders/address_plan.ts";

/** The result of the command. */
export interface RenderOutput {
  readonly code: number;
  /** The text on standard output. */
  readonly out: string;
  readonly err: string;
}

/** Runs `render` with these arguments, as if on the node of the address plan. */
export async function render(args: readonly string[]): Promise<RenderOutput> {
  const texts = { out: "", err: "" };
  const dependencies = createDependencies();
  const code = await runCommandLine(
    {
      ...dependencies,
      commands: { run: (program) => Promise.reject(new Error(`${program} was started`)) },
      process: { ...dependencies.process, hostname: THIS_NODE, env: () => undefined },
      print: (text) => void (texts.out += text),
      complain: (text) => void (texts.err += text),
    },
    ["render", ...args],
    () => new AbortController().signal,
  );
  return { code, ...texts };
}
