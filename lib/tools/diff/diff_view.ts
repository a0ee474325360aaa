/** The report of `diff` as text for a terminal, by Service, and as JSON. Pure. */
import { printableText } from "../../log/printable_text.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import { loopText } from "../../engine/loop_id.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import { serviceKey, servicePortText } from "../../proxy/service_port_name.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";
import { ageText, timeTexts } from "../status/number_texts.ts";
import { countText } from "../../log/count_text.ts";
import type { RoutingComparison } from "./compare_routing.ts";
import {
  countDifferences,
  countQuarantined,
  type FamilyDifference,
  type NodeDifference,
  type ServicePortNames,
} from "./node_difference.ts";

interface DiffViewOptions extends TextLook {
  /** Milliseconds since 1970, for the time of the next try. @default {0} */
  readonly now?: number;
  /** Name of a time zone, e.g. `UTC`. @default {that of the machine} */
  readonly timeZone?: string | undefined;
}

interface View extends TextStyle {
  readonly retryText: (retryAt: string | undefined) => string;
}

/** Most differences of one Service. */
const MOST_SHOWN = 12;
/** Most lines of one object. */
const MOST_LINES = 6;
const INDENT = 11;
const SHARED = "For all Services";
const SHARED_POLICIES = "For all NetworkPolicies";

/** Names of ServicePorts; the key of another item is its name. */
type NamedItems = ReadonlyMap<
  string,
  ServicePortNames extends ReadonlyMap<unknown, infer Named> ? Named : never
>;

/** All differences, and their number in the last line. */
export function renderDifference(
  difference: NodeDifference,
  { now = 0, timeZone, ...look }: DiffViewOptions = {},
): string {
  const { mode, nodeName, families, routing } = difference;
  const retryText = (at: string | undefined) => retryTimeText(at, { now, timeZone });
  const view: View = { ...textStyle(look, { least: 0 }), retryText };
  const lines = [`Node     ${printableText(nodeName)}, mode ${mode}`];
  for (const family of families) {
    // An empty line ends a list.
    if (lines.length > families.indexOf(family) + 1) lines.push("");
    // A list of 100,000 lines is too long for push(...lines).
    for (const line of familyLines(family, view)) lines.push(line);
  }
  if (routing) {
    if (lines.length > families.length + 1) lines.push("");
    lines.push(...routingLines(routing, view));
  }
  lines.push("", lastLine(difference, view));
  return `${lines.join("\n")}\n`;
}

function familyLines(
  { controller = "service", family, services, differences, quarantined, repair }: FamilyDifference,
  view: View,
): readonly string[] {
  const { colors } = view;
  const shown = repair?.found ?? differences;
  const name = loopText({ controller, family });
  const label = `${colors.bold(name)}${controller === "service" ? "     " : "  "}`;
  const left = quarantineLines(quarantined, services, view);
  if (shown.length === 0) return [`${label}as planned`, ...left];
  const text = repair === undefined
    ? countText(shown.length, "difference")
    : `${countText(shown.length, "difference")}, of which ${
      shown.length - differences.length
    } repaired`;
  const lines = [`${label}${text}`];
  const shared = controller === "service" ? SHARED : SHARED_POLICIES;
  const titled = Map.groupBy(shown, ({ key }) => key ? titleOf(services, key) : shared);
  const groups = [...titled].sort((
    [one],
    [other],
  ) => Number(one === SHARED) - Number(other === SHARED) || (one < other ? -1 : 1));
  for (const [title, group] of groups) {
    lines.push("", colors.bold(printableText(title)));
    for (const each of group.slice(0, MOST_SHOWN)) lines.push(...differenceLines(each, view));
    const more = group.length - MOST_SHOWN;
    if (more > 0) lines.push(`  and ${more} more; --json has all`);
  }
  return [...lines, ...left];
}

/** Addresses of layer 2, and the configuration and announcements of the BGP daemon. */
function routingLines(
  { differences, problem }: RoutingComparison,
  view: View,
): readonly string[] {
  const { colors } = view;
  const label = "Routing  ";
  const note = problem === undefined
    ? []
    : [colors.yellow(hangingText(label, `BGP was not compared: ${problem}`, view))];
  if (differences.length === 0) return note.length > 0 ? note : [`${label}as planned`];
  const more = differences.length - MOST_SHOWN;
  return [
    ...note,
    `${label}${colors.red(countText(differences.length, "difference"))}`,
    ...differences.slice(0, MOST_SHOWN).flatMap((each) => differenceLines(each, view)),
    ...(more > 0 ? [`  and ${more} more; --json has all`] : []),
    hangingText(
      "  ",
      "kube-relay repairs them by itself; 'kube-relay status' says what hinders it",
      {
        ...view,
        indent: 2,
      },
    ),
  ];
}

/** Items that were left out, with the reason. */
function quarantineLines(
  quarantined: readonly Quarantined<string>[],
  services: NamedItems,
  view: View,
): readonly string[] {
  if (quarantined.length === 0) return [];
  const items = quarantined.slice(0, MOST_SHOWN).flatMap(({ key, address, reason, retryAt }) => [
    hangingText(
      "  ",
      `${[titleOf(services, key), address ?? []].flat().join(" ")}: ${reason}`,
      { ...view, indent: INDENT - 7 },
    ),
    hangingText(" ".repeat(INDENT - 7), view.retryText(retryAt), view),
  ]);
  const more = quarantined.length - MOST_SHOWN;
  return [
    "",
    view.colors.yellow("In quarantine (left out until tried again; no difference):"),
    ...items,
    ...(more > 0 ? [`  and ${more} more; --json has all`] : []),
  ];
}

function titleOf(services: NamedItems, key: string): string {
  const service = services.get(key);
  return service ? `${servicePortText(service.name)} ${service.protocol}` : key;
}

function differenceLines(
  { kind, object, name, wanted, found, cure }: DataPlaneDifference,
  view: View,
): readonly string[] {
  const { colors } = view;
  const word = kind.padEnd(INDENT - 2);
  const first = hangingText(" ".repeat(INDENT), `${object} ${name}`, view).slice(INDENT);
  return [
    `  ${kind === "extra" ? colors.yellow(word) : colors.red(word)}${first}`,
    ...textLines("wanted", wanted, view),
    ...textLines("found", found, view),
    ...(cure === undefined ? [] : [hangingText(" ".repeat(INDENT), cure, view)]),
  ];
}

function textLines(label: string, text: string | undefined, view: View): readonly string[] {
  if (text === undefined) return [];
  const lines = text.split("\n");
  const further = " ".repeat(INDENT + label.length + 1);
  const shown = lines.slice(0, MOST_LINES).map((line) => hangingText(further, line, view));
  const more = lines.length - shown.length;
  const [first = "", ...rest] = shown;
  return [
    `${" ".repeat(INDENT)}${view.colors.dim(label)} ${first.slice(further.length)}`,
    ...rest,
    ...(more > 0 ? [`${" ".repeat(INDENT + 7)}and ${more} more lines`] : []),
  ];
}

function lastLine(difference: NodeDifference, { colors }: View): string {
  const left = countDifferences(difference);
  const isRepair = difference.families.some(({ repair }) => repair !== undefined);
  if (left > 0) {
    const repairable = difference.families.flatMap(({ differences }) => differences)
      .filter(({ cure }) => cure === undefined).length;
    const which = repairable < left ? `${repairable} of them` : left === 1 ? "it" : "them";
    const cure = isRepair || repairable === 0
      ? ""
      : `; 'kube-relay diff --repair' repairs ${which}`;
    return colors.red(`${countText(left, "difference")}${isRepair ? " left" : ""}${cure}`);
  }
  if (difference.routing?.problem !== undefined) {
    return colors.yellow("The machine is as planned, as far as it was compared");
  }
  const but = countQuarantined(difference) > 0 ? ", except for the quarantine" : "";
  return colors.green(`${isRepair ? "All is as planned now" : "The machine is as planned"}${but}`);
}

function retryTimeText(
  retryAt: string | undefined,
  { now, timeZone }: { readonly now: number; readonly timeZone: string | undefined },
): string {
  if (retryAt === undefined) return "checked again with each sync";
  const { day, time } = timeTexts(timeZone);
  const waitMs = Date.parse(retryAt) - now;
  return waitMs > 0
    ? `tried again in ${ageText(waitMs)}, from ${time(retryAt)} on`
    : `to be tried again since ${day(retryAt)} ${time(retryAt)}`;
}

/** A value for `JSON.stringify()`; docs/diff.md describes its fields. */
export function differenceJson(difference: NodeDifference): unknown {
  const { mode, nodeName, families, routing } = difference;
  return {
    node: nodeName,
    mode,
    differences: countDifferences(difference),
    families: families.map((
      { controller, family, services, differences, quarantined, repair },
    ) => ({
      ...(controller && { controller }),
      family,
      differences: differences.map((each) => withService(services, each)),
      quarantined: quarantined.map((each) =>
        controller ? withPolicy(each) : withService(services, each)
      ),
      ...(repair && {
        repair: {
          found: repair.found.map((each) => withService(services, each)),
          operations: repair.operations,
        },
      }),
    })),
    ...(routing && { routing }),
  };
}

function withPolicy({ key: policy, ...rest }: Quarantined<string>) {
  return { policy, ...rest };
}

function withService(
  services: NamedItems,
  { key, ...rest }: DataPlaneDifference | Quarantined<string>,
) {
  if (key === undefined) return rest;
  const service = services.get(key);
  return { ...(service && { service: serviceKey(service.name) }), servicePort: key, ...rest };
}
