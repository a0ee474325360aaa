/**
 * From the start of kube-relay to all Services programmed, on the real API machinery.
 *
 * @module
 */
import { createBenchNamespace } from "./bench_namespace.ts";
import type { StartFigures } from "./start.ts";

const PROGRAM = new URL("./start.ts", import.meta.url).pathname;

/** Measures in a namespace of its own. Throws with what the program said when it fails. */
export async function measureStart(services: number): Promise<StartFigures> {
  await using namespace = await createBenchNamespace();
  const args = ["run", "--quiet", "--no-prompt", "--no-check", "--unstable-net"];
  const rights = ["net", "read", "write", "env", "sys", "run"].map((right) => `--allow-${right}`);
  const line = [...args, ...rights, PROGRAM, String(services)];
  const { code, stdout, stderr } = await new Deno.Command("ip", {
    args: ["netns", "exec", namespace.name, Deno.execPath(), ...line],
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot measure a start: ${text.decode(stderr)}`);
  return JSON.parse(text.decode(stdout).trim().split("\n").at(-1) ?? "");
}
