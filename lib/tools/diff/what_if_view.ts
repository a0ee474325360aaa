/** The changes that other objects would make, as text and as JSON. Pure. */
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import type { PlannedRoutingChange } from "../../routing/compare_planned_routing.ts";
import { printableText } from "../../log/printable_text.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";
import { countText } from "../../log/count_text.ts";
import { policyChangeLines } from "./policy_changes_view.ts";
import { countChanges, type FamilyWhatIf, type PlanChange, type WhatIf } from "./what_if.ts";

/** Most removed, and most added, lines of one Service. */
const MOST_LINES = 12;
/** Most changes of addresses and routes. */
const MOST_ROUTING = 40;
const INDENT = 4;

/** Each Service that would change: in words, then the removed and added rules. */
export function renderWhatIf(whatIf: WhatIf, look: TextLook = {}): string {
  const { before: { mode, nodeName }, families, policies, routing } = whatIf;
  const view = textStyle(look, { least: 0 });
  const lines = [`Node     ${printableText(nodeName)}, mode ${mode}`];
  for (const family of families) {
    // An empty line ends a list.
    if (lines.length > families.indexOf(family) + 1) lines.push("");
    // A list of 100,000 lines is too long for push(...lines).
    for (const line of familyLines(family, view)) lines.push(line);
  }
  for (const comparison of policies) lines.push(...policyChangeLines(comparison, view));
  if (routing) lines.push(...routingChangeLines(routing, view));
  const count = countChanges(whatIf);
  const last = count === 0
    ? view.colors.green("Nothing would change")
    : view.colors.yellow(`${countText(count, "thing")} would change`);
  return `${[...lines, "", last].join("\n")}\n`;
}

/** A value for `JSON.stringify()`; docs/diff.md describes its fields. */
export function whatIfJson(whatIf: WhatIf): unknown {
  const { before: { mode, nodeName }, families, policies, routing } = whatIf;
  return {
    node: nodeName,
    mode,
    changes: countChanges(whatIf),
    ...(policies.length > 0 && { policies }),
    ...(routing && { routing }),
    families: families.map(({ family, changes, shared }) => ({
      family,
      shared,
      changes: changes.map(({ key, ...rest }) => ({ servicePort: key, ...rest })),
    })),
  };
}

/** Addresses of Services and their nodes, and the sessions and announcements of this node. */
function routingChangeLines(
  changes: readonly PlannedRoutingChange[],
  view: TextStyle,
): readonly string[] {
  const title = view.colors.bold("Routing");
  if (changes.length === 0) return ["", `${title}  nothing would change`];
  const more = changes.length - MOST_ROUTING;
  return [
    "",
    title,
    ...changes.slice(0, MOST_ROUTING).map(({ object, name, before, after, reason }) => {
      const words = `${OBJECTS[object]} ${name}: ${before ?? "none"} -> ${after ?? "none"}`;
      const why = reason === undefined ? "" : ` (${reason})`;
      return hangingText("  ", words + why, { ...view, indent: INDENT });
    }),
    ...(more > 0 ? [`  and ${more} more; --json has all`] : []),
  ];
}

const OBJECTS: Readonly<Record<PlannedRoutingChange["object"], string>> = {
  address: "addresses of",
  owner: "node that answers for",
  peer: "session with",
  announcement: "announcement of",
};

function familyLines(family: FamilyWhatIf, view: TextStyle): readonly string[] {
  const { colors } = view;
  const { changes, shared } = family;
  if (changes.length + shared.length === 0) {
    return [`${colors.bold(family.family)}     nothing would change`];
  }
  const ports = changes.length === 1
    ? "1 port of a Service"
    : `${changes.length} ports of Services`;
  const lines = [`${colors.bold(family.family)}     ${ports}`];
  if (shared.length > 0) {
    lines.push("", colors.bold("For all Services"));
    for (const words of shared) lines.push(hangingText("  ", words, view));
  }
  return [...lines, ...changes.flatMap((change) => changeLines(change, family, view))];
}

function changeLines(
  { key, kind, details, rules: { removed, added } }: PlanChange,
  { plans }: FamilyWhatIf,
  view: TextStyle,
): readonly string[] {
  const { colors } = view;
  return [
    "",
    `${colors.bold(printableText(titleOf(key, plans)))} ${kind}`,
    ...(details.length > 0 ? [hangingText("  ", details.join("; "), view)] : []),
    ...signed("-", removed, { ...view, paint: colors.red }),
    ...signed("+", added, { ...view, paint: colors.green }),
  ];
}

function signed(
  sign: "+" | "-",
  lines: readonly string[],
  { width, paint }: TextStyle & { readonly paint: (text: string) => string },
): readonly string[] {
  const shown = lines.slice(0, MOST_LINES);
  const more = lines.length - shown.length;
  return [
    ...shown.map((line) => paint(hangingText(`${" ".repeat(INDENT)}${sign} `, line, { width }))),
    ...(more > 0 ? [`${" ".repeat(INDENT)}${sign} and ${more} more lines; --json has all`] : []),
  ];
}

function titleOf(key: ServicePortKey, plans: FamilyWhatIf["plans"]): string {
  const [before, after] = plans;
  const service = before.services.get(key) ?? after.services.get(key);
  return service ? `${servicePortText(service.name)} ${service.protocol}` : key;
}
