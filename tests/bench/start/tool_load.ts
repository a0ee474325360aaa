/**
 * The other baseline of a start: the kernel's tool loads the same rules into a new network namespace.
 *
 * @module
 */
import { runTool } from "../../support/drivers/run_tool.ts";
import type { StartedMode } from "./run_start.ts";

/** The cost of one load. */
export interface ToolLoad {
  readonly seconds: number;
  readonly cpuSeconds: number;
}

const TOOLS: Readonly<Record<StartedMode, { readonly save: string; readonly load: string }>> = {
  nftables: { save: "nft list ruleset", load: "nft -f" },
  iptables: { save: "iptables-nft-save", load: "iptables-nft-restore" },
  "iptables-legacy": { save: "iptables-legacy-save", load: "iptables-legacy-restore" },
};

/** Takes the rules of this network namespace, and loads them into another one. */
export async function measureToolLoad(mode: StartedMode, folder: string): Promise<ToolLoad> {
  const { save, load } = TOOLS[mode];
  const path = `${folder}/rules`;
  const times = `${folder}/times`;
  // The counters of nfacct that two rules name are not in the other namespace.
  await runTool("bash", ["-c", `${save} | grep -v nfacct >${path}`]);
  await runTool("unshare", [
    "--net",
    ...["bash", "-c", `TIMEFORMAT="%R %U %S"; { time ${load} ${path}; } 2>${times}`],
  ]);
  const [seconds = NaN, user = NaN, system = NaN] = (await Deno.readTextFile(times)).trim()
    .split(" ").map(Number);
  return { seconds, cpuSeconds: user + system };
}
