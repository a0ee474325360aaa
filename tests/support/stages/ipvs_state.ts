/** All objects of the ipvs mode as text, for comparisons over time. */
import type { Namespace } from "./netns.ts";

/** Runs a program and returns its output. */
export type RunTool = (program: string, args: readonly string[]) => Promise<string>;

/** Virtual servers with their real ones and weights, sorted. */
export async function virtualServers(run: RunTool): Promise<string[]> {
  const text = await run("ipvsadm", ["-S", "-n"]);
  return text.trimEnd().split("\n").sort();
}

/** All objects of both families, without counters, and sorted if they have no order. */
export async function ipvsState(run: RunTool): Promise<string> {
  const rules = [await run("iptables-save", []), await run("ip6tables-save", [])];
  const sets = await run("ipset", ["save"]);
  const addresses = await run("ip", ["-o", "addr", "show"]);
  return [
    ...await virtualServers(run),
    ...rules.flatMap(rulesInOrder),
    // Seeds of hashes, and entries, are in no order.
    ...sets.replaceAll(/ (bucketsize|initval) \S+/g, "").split("\n").sort(),
    // A recreated device has another number.
    ...addresses.replaceAll(/^\d+: /gm, "").split("\n").sort(),
  ].join("\n");
}

/** As {@linkcode ipvsState}, of a namespace. */
export function ipvsStateOf(node: Namespace): Promise<string> {
  return ipvsState((program, args) => node.output(program, args));
}

/**
 * Rules of single Services are in the order of their creation, and jumps stay where an earlier
 * kube-proxy put them. All others have a fixed order.
 */
function rulesInOrder(text: string): string[] {
  const lines = text.replaceAll(/^#.*\n|\[\d+:\d+\]/gm, "").split("\n");
  const isInNoOrder = (line: string) =>
    /^-A (KUBE-FROM-CLUSTER |(INPUT|FORWARD|OUTPUT|PREROUTING|POSTROUTING) .* -j KUBE-)/.test(line);
  return [...lines.filter((line) => !isInNoOrder(line)), ...lines.filter(isInNoOrder).sort()];
}
