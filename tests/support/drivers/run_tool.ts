/** Runs a program and returns its output; throws with it if the program fails. */
export async function runTool(program: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, { args: [...args] }).output();
  if (code === 0) return new TextDecoder().decode(stdout);
  const words = new TextDecoder().decode(stderr);
  throw new Error(`Cannot run '${program} ${args.join(" ")}': it ended with ${code}: ${words}`);
}
