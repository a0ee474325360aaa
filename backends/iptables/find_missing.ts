/**
 * Finds the rules for a packet that are missing in the kernel. Reads only the chains that should
 * contain them, which takes a hundredth of the time of a full read in a large table.
 *
 * @module
 */
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { PacketCarrier } from "../../lib/proxy/packet_explanation.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { isSameRule } from "../netfilter/iptables/rule_normal_form.ts";

const CARRIER = /^-[AI] (\S+) (.*)$/s;

/** Asks for one chain after the other. Throws an IptablesError, and before start() has succeeded. */
export async function findMissingRules(
  runner: Pick<IptablesRunner, "rulesOf"> | undefined,
  carriers: readonly PacketCarrier[],
): Promise<readonly DataPlaneDifference[]> {
  if (runner === undefined) throw new Error("Cannot look for rules: start() has not succeeded");
  const differences: DataPlaneDifference[] = [];
  for (const [name, group] of Map.groupBy(carriers, ({ name }) => name)) {
    const [table = "", chain = ""] = name.split(" ");
    const found = await runner.rulesOf(table as IptablesTable, chain);
    if (found === undefined) {
      differences.push({ object: "chain", name, kind: "missing", wanted: `:${chain} - [0:0]` });
      continue;
    }
    for (const { object, text } of group) {
      const [, , rule = ""] = CARRIER.exec(text) ?? [];
      if (found.some((printed) => isSameRule(rule, printed))) continue;
      differences.push({ object, name, kind: "missing", wanted: text });
    }
  }
  return differences;
}
