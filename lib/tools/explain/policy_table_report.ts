/** The truth table of a namespace as a report. Pure. */
import { portsText } from "../../policy/allowed_ports.ts";
import type { ConnectionTable, TableGroup } from "../../policy/connection_table.ts";
import { isOfCluster } from "../../policy/judge_connection.ts";
import type { Report } from "../report.ts";
import { countText } from "../../log/count_text.ts";

/** Most pods, and blocks, of a group that are named. */
const MOST_NAMED = 4;
/** Most rows and columns; `--json` has all. */
const MOST_SHOWN = 26;

/** Columns of one table; further ones stand below. */
const MOST_COLUMNS = 8;

/**
 * Shows the groups and the table of connections for each IP family. Families with the same table
 * share one.
 */
export function tablesReport(tables: readonly ConnectionTable[]): Report {
  const byContent = Map.groupBy(
    tables,
    ({ family: _, groups, ...rest }) =>
      JSON.stringify({ ...rest, groups: groups.map(({ blocks: _, ...group }) => group) }),
  );
  const parts = [...byContent.values()].map((same) =>
    tableReport(same[0]!, same.map(({ family }) => family).join(" and "))
  );
  return { title: "", rows: [], parts };
}

function tableReport(
  { namespace, policies, groups, ports, groupsLeftOut }: ConnectionTable,
  families: string,
): Report {
  const shown = groups.slice(0, MOST_SHOWN);
  const pods = groups.filter((group) => group.namespace === namespace)
    .reduce((sum, group) => sum + (group.pods?.length ?? 0), 0);
  const cells = shown.map((from, row) =>
    shown.map((to, column) => {
      const cell = ports[row]![column];
      const isSelf = from === to && from.pods?.length === 1;
      return cell === undefined ? "" : isSelf ? "self" : portsText(cell);
    })
  );
  const more = groups.length - shown.length + groupsLeftOut;
  const blocks = Array.from(
    { length: Math.ceil(shown.length / MOST_COLUMNS) },
    (_, block) => columnBlock(cells, block * MOST_COLUMNS),
  );
  const rest = `and ${countText(more, "more group")}; --json has those of the table`;
  return {
    title: `Namespace ${namespace}, ${families}: ${countText(pods, "pod")}, ` +
      (policies.length === 1 ? "1 NetworkPolicy" : `${policies.length} NetworkPolicies`),
    rows: shown.map((group, place) => ({ cells: [letter(place), groupText(group, namespace)] })),
    parts: [
      {
        ...blocks[0]!,
        title: "Ports on which FROM (rows) reaches TO (columns), allowed at both ends",
      },
      ...blocks.slice(1),
      ...(more > 0 ? [{ title: "", rows: [{ cells: [rest] }], parts: [] }] : []),
    ],
  };
}

function groupText(
  { kind, pods = [], blocks = [], isolated, namespace: own }: TableGroup,
  namespace: string,
): string {
  const limited = (items: readonly string[], noun: string) => {
    const more = items.length - MOST_NAMED;
    const named = items.slice(0, MOST_NAMED).join(", ");
    return more > 0 ? `${named} and ${countText(more, `more ${noun}`)}` : named;
  };
  if (kind === "outside") return "any other address outside";
  if (kind === "blocks" || kind === "nodes") return limited(blocks, "block");
  if (own !== namespace) return `other namespaces: ${limited(pods, "pod")}`;
  const names = pods.map((key) => key.slice(key.indexOf("/") + 1));
  const directions = (["ingress", "egress"] as const).flatMap((direction) => {
    const by = isolated?.[direction];
    if (!by) return [];
    const does = by.every(isOfCluster) ? "decided" : "isolated";
    return [`${direction} ${does} by ${limited(by, "policy")}`];
  });
  return `${limited(names, "pod")}: ${directions.join("; ") || "not isolated"}`;
}

/** Some columns; rows that are equal in them are one. */
function columnBlock(cells: readonly (readonly string[])[], first: number): Report {
  const columns = [...cells.keys()].slice(first, first + MOST_COLUMNS);
  const rows = Map.groupBy(
    cells.keys(),
    (row) => columns.map((column) => cells[row]![column]!).join("\t"),
  );
  return {
    title: "",
    columns: ["", ...columns.map(letter)],
    rows: [...rows].filter(([text]) => text.trim() !== "")
      .map(([text, same]) => ({ cells: [same.map(letter).join(" "), ...text.split("\t")] })),
    parts: [],
  };
}

function letter(place: number): string {
  return String.fromCharCode("A".charCodeAt(0) + place);
}
