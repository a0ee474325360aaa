import { relayCommand } from "../forwarders.ts";

/** Runs a program, discards its output, and returns its usage as `times` prints it. */
const SCRIPT = '"$@" >/dev/null; code=$?; times; exit $code';
const TIME = /(\d+)m([\d.]+)s/g;

/** The options of the run. */
export interface ToolRun {
  /** A command that it is run by, such as `ip netns exec NAME`. */
  readonly by?: readonly string[];
}

/**
 * Runs kube-relay to its end. Resolves to the CPU time of it and of all child processes, including
 * system time, in milliseconds. Rejects with its standard error.
 */
export async function toolCpuMs(
  argv: readonly string[],
  { by = [] }: ToolRun = {},
): Promise<number> {
  const { program, args } = relayCommand();
  const { code, stdout, stderr } = await new Deno.Command("bash", {
    args: ["-c", SCRIPT, "bash", ...by, program, ...args, ...argv],
    stdin: "null",
  }).output();
  if (code !== 0) throw new Error(`${argv.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  // The first line is for the shell, the second one for its children.
  const [, ofTool = ""] = new TextDecoder().decode(stdout).split("\n");
  const times = [...ofTool.matchAll(TIME)].map(([, minutes, seconds]) =>
    Number(minutes) * 60_000 + Number(seconds) * 1000
  );
  if (times.length !== 2) throw new Error(`Cannot read the times of the shell: '${ofTool}'`);
  return times.reduce((sum, ms) => sum + ms, 0);
}
