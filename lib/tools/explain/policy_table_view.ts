/** The truth table of a namespace as text. Pure. */
import { printableText } from "../../log/printable_text.ts";
import { portsText } from "../../policy/allowed_ports.ts";
import type { ConnectionTable, TableGroup } from "../../policy/connection_table.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";
import { countText } from "../../log/count_text.ts";

/** Most pods, and blocks, of a group that are named. */
const MOST_NAMED = 4;
/** Most rows and columns; `--json` has all. */
const MOST_SHOWN = 26;
const NAME_WIDTH = 8;

/**
 * Shows the groups and the table of connections for each IP family. Families with the same table
 * share one.
 */
export function renderTables(tables: readonly ConnectionTable[], look: TextLook = {}): string {
  const view = textStyle(look);
  const byContent = Map.groupBy(
    tables,
    ({ family: _, ...rest }) => JSON.stringify({ ...rest, groups: rest.groups.map(withoutBlocks) }),
  );
  return [...byContent.values()].map(([first, ...others]) => {
    const families = [first!, ...others].map(({ family }) => family).join(" and ");
    return `${tableLines(first!, families, view).join("\n")}\n`;
  }).join("\n");
}

function withoutBlocks({ blocks: _, ...group }: TableGroup): TableGroup {
  return group;
}

function tableLines(
  { namespace, policies, groups, ports, groupsLeftOut }: ConnectionTable,
  families: string,
  view: TextStyle,
): readonly string[] {
  const { colors } = view;
  const shown = groups.slice(0, MOST_SHOWN);
  const own = shown.map((group, place) => ({ group, place }));
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
  const heading =
    `Namespace ${printableText(namespace)}, ${families}: ${countText(pods, "pod")}, ` +
    (policies.length === 1 ? "1 NetworkPolicy" : `${policies.length} NetworkPolicies`);
  return [
    colors.bold(heading),
    "",
    ...own.flatMap(({ group, place }) => groupLines(group, place, { namespace, view })),
    "",
    "Ports on which FROM (rows) reaches TO (columns), allowed at both ends:",
    ...columnBlocks(cells, view),
    ...(more > 0
      ? ["", `and ${countText(more, "more group")}; --json has those of the table`]
      : []),
  ];
}

function groupLines(
  { kind, pods = [], blocks = [], isolated, namespace: own }: TableGroup,
  place: number,
  { namespace, view }: { readonly namespace: string; readonly view: TextStyle },
): readonly string[] {
  const label = ` ${letter(place)}  `;
  const limited = (items: readonly string[], noun: string) => {
    const more = items.length - MOST_NAMED;
    const named = items.slice(0, MOST_NAMED).join(", ");
    return more > 0 ? `${named} and ${countText(more, `more ${noun}`)}` : named;
  };
  if (kind === "outside") return [`${label}any other address outside`];
  if (kind === "blocks") return [hangingText(label, limited(blocks, "block"), view)];
  if (own !== namespace) {
    return [hangingText(label, `other namespaces: ${limited(pods, "pod")}`, view)];
  }
  const names = pods.map((key) => key.slice(key.indexOf("/") + 1));
  const directions = (["ingress", "egress"] as const).flatMap((direction) => {
    const by = isolated?.[direction];
    return by ? [`${direction} isolated by ${limited(by, "policy")}`] : [];
  });
  const state = directions.join("; ") || "not isolated";
  return [hangingText(label, `${limited(names, "pod")}: ${state}`, view)];
}

/** As many columns below each other as the terminal is wide. */
function columnBlocks(
  cells: readonly (readonly string[])[],
  { width, colors }: TextStyle,
): readonly string[] {
  const widths = cells.map((_, column) =>
    Math.max(4, ...cells.map((row) => row[column]!.length)) + 2
  );
  const lines: string[] = [];
  for (let first = 0; first < widths.length;) {
    let [last, used] = [first, NAME_WIDTH];
    while (last < widths.length && (last === first || used + widths[last]! <= width)) {
      used += widths[last++]!;
    }
    const columns = widths.map((_, column) => column).slice(first, last);
    const pad = (texts: readonly string[]) =>
      columns.map((column) => texts[column]!.padEnd(widths[column]!)).join("").trimEnd();
    const rows = Map.groupBy(cells.keys(), (row) => pad(cells[row]!));
    lines.push(
      `${first > 0 ? "\n" : ""}${"".padEnd(NAME_WIDTH)}${
        colors.bold(pad(cells.map((_, column) => letter(column))))
      }`,
    );
    for (const [text, same] of rows) {
      if (text === "") continue;
      const name = same.map(letter).join(" ");
      // Names of many equal rows need a line of their own.
      if (name.length > NAME_WIDTH - 2) lines.push(` ${name}`, `${"".padEnd(NAME_WIDTH)}${text}`);
      else lines.push(` ${name}`.padEnd(NAME_WIDTH) + text);
    }
    first = last;
  }
  return lines;
}

function letter(place: number): string {
  return String.fromCharCode("A".charCodeAt(0) + place);
}
