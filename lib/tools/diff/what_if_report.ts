/** The changes that other objects would make as a report, and its JSON. Pure. */
import { countText, groupedText } from "../../log/count_text.ts";
import { portsText } from "../../policy/allowed_ports.ts";
import type {
  ChangedEnd,
  ConnectionChange,
  PolicyComparison,
} from "../../policy/compare_policies.ts";
import { policyNames } from "../../policy/judge_connection.ts";
import type { PlannedRoutingChange } from "../../routing/compare_planned_routing.ts";
import type { Report, Row } from "../report.ts";
import { servicePortTitle } from "./difference_report.ts";
import { countChanges, type FamilyWhatIf, type WhatIf } from "./what_if.ts";

/** Most changes of connections between pods. */
const MOST_CONNECTIONS = 20;
/** Most changes of addresses and routes. */
const MOST_ROUTING = 40;
/** Most pods of an end that are named. */
const MOST_PODS = 3;

/** Each Service, connection, address and route that would change. */
export function whatIfReport(whatIf: WhatIf): Report {
  const { before: { mode, nodeName }, families, policies, routing } = whatIf;
  const count = countChanges(whatIf);
  const last: Row = count === 0
    ? { cells: ["Nothing would change"], tone: "good" }
    : { cells: [`${countText(count, "thing")} would change`], tone: "warning" };
  return {
    title: "",
    rows: [{ cells: ["Node", `${nodeName}, mode ${mode}`] }],
    parts: [
      ...families.map(familyPart),
      ...policies.map(policyPart),
      ...(routing ? [routingPart(routing)] : []),
      { title: "", rows: [last], parts: [] },
    ],
  };
}

/** The data of `--json`; docs/diff.md describes its fields. */
export function whatIfJson(whatIf: WhatIf): object {
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

function familyPart({ family, changes, shared }: FamilyWhatIf): Report {
  const rows = [
    ...shared.map((text) => ({ cells: ["all Services", text] })),
    ...changes.map(({ key, kind, details }): Row => ({
      cells: [kind, servicePortTitle(key)],
      tone: kind === "added" ? "good" : kind === "removed" ? "bad" : "warning",
      detail: details,
    })),
  ];
  return part(family, rows, Infinity);
}

function part(title: string, rows: readonly Row[], most: number): Report {
  const more = rows.length - most;
  if (rows.length === 0) return { title, rows: [{ cells: ["nothing would change"] }], parts: [] };
  const rest = more > 0
    ? [{ cells: [`and ${countText(more, "more change")}; --json has all`] }]
    : [];
  return { title, rows: [...rows.slice(0, most), ...rest], parts: [] };
}

const OBJECTS: Readonly<Record<PlannedRoutingChange["object"], string>> = {
  address: "addresses of",
  owner: "node that answers for",
  peer: "session with",
  announcement: "announcement of",
};

/** Addresses of Services and their nodes, and the sessions and announcements of this node. */
function routingPart(changes: readonly PlannedRoutingChange[]): Report {
  const rows = changes.map(({ object, name, before, after, reason }) => {
    const words = `${OBJECTS[object]} ${name}: ${before ?? "none"} -> ${after ?? "none"}`;
    return { cells: [reason === undefined ? words : `${words} (${reason})`] };
  });
  return part("Routing", rows, MOST_ROUTING);
}

/** The pods that policies would cut off from each other come before those that they would connect. */
function policyPart(
  { family, changes, cutPairs, openedPairs, groupPairsLeftOut }: PolicyComparison,
): Report {
  const pairs = (count: number) =>
    `${groupedText(count)} ${count === 1 ? "pair" : "pairs"} of pods`;
  const sorted = changes.toSorted((left, right) => Number(isCut(right)) - Number(isCut(left)));
  const listed = part(
    `NetworkPolicies, ${family}`,
    sorted.map(changeRow),
    MOST_CONNECTIONS,
  );
  if (changes.length + groupPairsLeftOut === 0) return listed;
  const leftOut = `${groupedText(groupPairsLeftOut)} pairs of groups of pods were not compared: ` +
    "there are too many; apply the policies in parts";
  return {
    ...listed,
    rows: [
      { cells: [`cut: ${pairs(cutPairs)}; opened: ${pairs(openedPairs)}`] },
      ...(changes.length > 0 ? listed.rows : []),
      ...(groupPairsLeftOut > 0 ? [{ cells: [leftOut] }] : []),
    ],
  };
}

function isCut({ after }: ConnectionChange): boolean {
  return after !== "all" && after.length === 0;
}

function changeRow(change: ConnectionChange): Row {
  const { from, to, before, after, decidedBy, policies } = change;
  const end = decidedBy === "egress" ? "sender" : "receiver";
  const reason = policies.length === 0
    ? `no NetworkPolicy isolates the ${end} any more`
    : `by ${policyNames(policies)}, ${decidedBy} of the ${end}`;
  return {
    cells: [`${endText(from)} -> ${endText(to)}`],
    tone: isCut(change) ? "bad" : "warning",
    detail: [`ports ${portsText(before)} -> ${portsText(after)}`, reason],
  };
}

function endText({ isOutside, pods, count }: ChangedEnd): string {
  if (isOutside) return "any address that is no pod's";
  const named = pods.slice(0, MOST_PODS).join(", ");
  const more = count - Math.min(pods.length, MOST_PODS);
  return more > 0 ? `${named} and ${groupedText(more)} more` : named;
}
