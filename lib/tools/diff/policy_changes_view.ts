/** Lists the pods that other policies would cut off from each other, or connect, as text. Pure. */
import { portsText } from "../../policy/allowed_ports.ts";
import type {
  ChangedEnd,
  ConnectionChange,
  PolicyComparison,
} from "../../policy/compare_policies.ts";
import { policyNames } from "../../policy/explain_connection.ts";
import { hangingText, type TextStyle } from "../cli/terminal_text.ts";
import { countText, groupedText } from "../../log/count_text.ts";

/** Most changes that are shown. */
const MOST_CHANGES = 20;
/** Most pods of an end that are named. */
const MOST_PODS = 3;

/** The counts, then each change, with cut connections first. */
export function policyChangeLines(
  { family, changes, cutPairs, openedPairs, groupPairsLeftOut }: PolicyComparison,
  view: TextStyle,
): readonly string[] {
  const { colors } = view;
  const title = colors.bold(`NetworkPolicies, ${family}`);
  if (changes.length + groupPairsLeftOut === 0) return ["", title, "  nothing would change"];
  const pairs = (count: number) =>
    `${groupedText(count)} ${count === 1 ? "pair" : "pairs"} of pods`;
  const lines = ["", title, `  cut: ${pairs(cutPairs)}; opened: ${pairs(openedPairs)}`];
  const isCut = ({ after }: ConnectionChange) => after !== "all" && after.length === 0;
  const sorted = changes.toSorted((left, right) => Number(isCut(right)) - Number(isCut(left)));
  for (const change of sorted.slice(0, MOST_CHANGES)) {
    lines.push(
      ...changeLines(change, { ...view, paint: isCut(change) ? colors.red : colors.yellow }),
    );
  }
  const more = sorted.length - MOST_CHANGES;
  if (more > 0) lines.push("", `  and ${countText(more, "more change")}; --json has all`);
  if (groupPairsLeftOut > 0) {
    const text = `${groupedText(groupPairsLeftOut)} pairs of groups of pods were not compared: ` +
      "there are too many; apply the policies in parts";
    lines.push("", hangingText("  ", text, view));
  }
  return lines;
}

function changeLines(
  { from, to, before, after, decidedBy, policies }: ConnectionChange,
  { paint, ...view }: TextStyle & { readonly paint: (text: string) => string },
): readonly string[] {
  const ends = `${endText(from)} -> ${endText(to)}`;
  const reason = policies.length === 0
    ? `no NetworkPolicy isolates the ${decidedBy === "egress" ? "sender" : "receiver"} any more`
    : `by ${policyNames(policies)}, ${decidedBy} of the ` +
      (decidedBy === "egress" ? "sender" : "receiver");
  return [
    "",
    hangingText("  ", ends, { ...view, indent: 4 }),
    paint(hangingText("    ", `ports ${portsText(before)} -> ${portsText(after)}`, view)),
    hangingText("    ", reason, view),
  ];
}

function endText({ isOutside, pods, count }: ChangedEnd): string {
  if (isOutside) return "any address that is no pod's";
  const named = pods.slice(0, MOST_PODS).join(", ");
  const more = count - Math.min(pods.length, MOST_PODS);
  return more > 0 ? `${named} and ${groupedText(more)} more` : named;
}
