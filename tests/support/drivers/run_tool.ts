/**
 * Programs that a test runs to their end.
 *
 * @module
 */

/** Runs a program; resolves to its standard output. Throws with its messages if it fails. */
export async function runTool(program: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, { args: [...args] }).output();
  if (code === 0) return new TextDecoder().decode(stdout);
  const words = new TextDecoder().decode(stderr);
  throw new Error(`Cannot run '${program} ${args.join(" ")}': it ended with ${code}: ${words}`);
}
