/**
 * A network namespace of the benchmark. Every address answers there: endpoints
 * are addresses of the namespace itself, and the rest leads nowhere but to the rules.
 */
import { Namespace } from "../support/stages/netns.ts";

/** A namespace in which every address of the benchmark leads somewhere. */
async function createBenchNamespace(): Promise<Namespace> {
  const namespace = await Namespace.create("bench");
  await namespace.ipBatch([
    "link add nowhere type veth peer name beyond",
    "addr add 10.0.0.1/32 dev nowhere",
    "link set nowhere up",
    "link set beyond up",
    "route add default dev nowhere",
    "route add local 10.0.0.0/9 dev lo",
  ]);
  return namespace;
}

/**
 * Runs a Deno program in its own namespace, and returns its last line, which is JSON. Throws with
 * its output if it fails.
 */
export async function runInBenchNamespace<T>(file: string, args: readonly string[]): Promise<T> {
  await using namespace = await createBenchNamespace();
  const deno = ["run", "--quiet", "--no-prompt", "--no-check", "--unstable-net"];
  const rights = ["net", "read", "write", "env", "sys", "run", "ffi"];
  const line = [...deno, ...rights.map((right) => `--allow-${right}`), file, ...args];
  const { code, stdout, stderr } = await new Deno.Command("ip", {
    args: ["netns", "exec", namespace.name, Deno.execPath(), ...line],
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot run ${file}: ${text.decode(stderr)}`);
  return JSON.parse(text.decode(stdout).trim().split("\n").at(-1) ?? "");
}
