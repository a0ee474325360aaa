/**
 * Programs that a test runs to their end.
 *
 * @module
 */

/** Runs a program; throws with its output if it fails. */
export async function runTool(program: string, args: readonly string[]): Promise<void> {
  const { code, stderr } = await new Deno.Command(program, { args: [...args] }).output();
  if (code === 0) return;
  const words = new TextDecoder().decode(stderr);
  throw new Error(`Cannot run '${program} ${args.join(" ")}': it ended with ${code}: ${words}`);
}
