/**
 * The ipvs mode among the modes whose rules stay. It runs in the guest of `deno task test:uml`
 * only.
 */
import { ipvsStateOf } from "./ipvs_state.ts";
import { netnsRequirements } from "./netns.ts";
import { program } from "../requirement.ts";
import type { RuleMode } from "./rule_modes.ts";

/** The mode. What it shares with iptables mode it writes by iptables-legacy, the only one there. */
export const IPVS_MODE: RuleMode = {
  name: "ipvs mode",
  mode: "ipvs",
  args: ["--mode=ipvs", "--ipvs-sync-period=1s", "--ipvs-min-sync-period=10ms"],
  requirements: () => [
    ...netnsRequirements(),
    ...["ipvsadm", "ipset", "iptables", "ip6tables"].map(program),
  ],
  prepare: () => Promise.resolve(),
  state: ipvsStateOf,
  othersUse: "legacy",
  startWords: ["Starting", "Chose the variant", "Entered phase"],
};
