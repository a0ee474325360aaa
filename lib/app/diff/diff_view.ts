/**
 * What `diff` found, as text for people: by Service, and what belongs to none last. Pure.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import { servicePortText } from "../../proxy/service_port_name.ts";
import { printableText } from "../../log/printable_text.ts";

import { ageText, timeTexts } from "../status/number_texts.ts";
import {
  countDifferences,
  countQuarantined,
  type FamilyDifference,
  type NodeDifference,
  type ServicePortNames,
} from "./node_difference.ts";

/** How the text looks. */
export interface DiffViewOptions {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
  /** Milliseconds since 1970, for what is still to come. @default {0} */
  readonly now?: number;
  /** Name of a time zone, e.g. `UTC`. @default {that of the machine} */
  readonly timeZone?: string | undefined;
}

type Colors = ReturnType<typeof createColors>;

/** How lines are written. */
interface View {
  readonly width: number;
  readonly colors: Colors;
  /** When something is tried again. */
  readonly retryText: (retryAt: string | undefined) => string;
}

/** Of one Service; JSON has all. */
const MOST_SHOWN = 12;
/** Of one object. */
const MOST_LINES = 6;
const INDENT = 11;
const SHARED = "For all Services";

/** All of it, with a last line that counts. */
export function renderDifference(
  difference: NodeDifference,
  { columns = 80, color = false, now = 0, timeZone }: DiffViewOptions = {},
): string {
  const { mode, nodeName, families } = difference;
  const retryText = (at: string | undefined) => retryTimeText(at, { now, timeZone });
  const view: View = { width: columns, colors: createColors(color), retryText };
  const lines = [`Node     ${printableText(nodeName)}, mode ${mode}`];
  for (const family of families) {
    // What comes after a list is no part of it.
    if (lines.length > families.indexOf(family) + 1) lines.push("");
    // Not push(...list): a list of some 100,000 lines is too long for arguments.
    for (const line of familyLines(family, view)) lines.push(line);
  }
  lines.push("", lastLine(difference, view));
  return `${lines.join("\n")}\n`;
}

function familyLines(
  { family, services, differences, quarantined, repair }: FamilyDifference,
  view: View,
): readonly string[] {
  const { colors } = view;
  const shown = repair?.found ?? differences;
  const label = `${family}     `;
  const left = quarantineLines(quarantined, services, view);
  if (shown.length === 0) return [`${colors.bold(family)}     as planned`, ...left];
  const mended = repair === undefined
    ? countText(shown.length)
    : `${countText(shown.length)}, of which ${shown.length - differences.length} repaired`;
  const lines = [`${colors.bold(family)}${label.slice(family.length)}${mended}`];
  const groups = [...Map.groupBy(shown, ({ key }) => titleOf(services, key))].sort((
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

/** What is not there on purpose, and why. */
function quarantineLines(
  quarantined: readonly Quarantined[],
  services: ServicePortNames,
  view: View,
): readonly string[] {
  if (quarantined.length === 0) return [];
  const items = quarantined.slice(0, MOST_SHOWN).flatMap(({ key, address, reason, retryAt }) => [
    `  ${
      wrapped(`${[titleOf(services, key), address ?? []].flat().join(" ")}: ${reason}`, view, -7)
        .trimStart()
    }`,
    wrapped(view.retryText(retryAt), view, -7),
  ]);
  const more = quarantined.length - MOST_SHOWN;
  return [
    "",
    view.colors.yellow("In quarantine (left out until tried again; no difference):"),
    ...items,
    ...(more > 0 ? [`  and ${more} more; --json has all`] : []),
  ];
}

function titleOf(services: ServicePortNames, key: DataPlaneDifference["key"]): string {
  if (key === undefined) return SHARED;
  const service = services.get(key);
  return service ? `${servicePortText(service.name)} ${service.protocol}` : key;
}

function differenceLines(
  { kind, object, name, wanted, found, cure }: DataPlaneDifference,
  view: View,
): readonly string[] {
  const { colors } = view;
  const word = kind.padEnd(INDENT - 2);
  const painted = kind === "extra" ? colors.yellow(word) : colors.red(word);
  const first = wrapped(`${object} ${name}`, view);
  return [
    `  ${painted}${first.trimStart()}`,
    ...textLines("wanted", wanted, view),
    ...textLines("found", found, view),
    ...(cure === undefined ? [] : [wrapped(cure, view)]),
  ];
}

function textLines(label: string, text: string | undefined, view: View): readonly string[] {
  if (text === undefined) return [];
  const lines = text.split("\n");
  const shown = lines.slice(0, MOST_LINES).map((line) => wrapped(line, view, label.length + 1));
  const more = lines.length - shown.length;
  const all = [...shown, ...(more > 0 ? [wrapped(`and ${more} more lines`, view, 7)] : [])];
  const [first = "", ...rest] = all;
  return [
    `${" ".repeat(INDENT)}${view.colors.dim(label)} ${first.trimStart()}`,
    ...rest,
  ];
}

function wrapped(text: string, { width }: View, further = 0): string {
  return wrapText(printableText(text), { width, indent: INDENT + further });
}

function lastLine(difference: NodeDifference, { colors }: View): string {
  const left = countDifferences(difference);
  const isRepair = difference.families.some(({ repair }) => repair !== undefined);
  if (left > 0) {
    const mendable = difference.families.flatMap(({ differences }) => differences)
      .filter(({ cure }) => cure === undefined).length;
    const which = mendable < left ? `${mendable} of them` : left === 1 ? "it" : "them";
    const cure = isRepair || mendable === 0 ? "" : `; 'kube-relay diff --repair' repairs ${which}`;
    return colors.red(`${countText(left)}${isRepair ? " left" : ""}${cure}`);
  }
  const but = countQuarantined(difference) > 0 ? ", but for what is in quarantine" : "";
  return colors.green(`${isRepair ? "All is as planned now" : "The machine is as planned"}${but}`);
}

function countText(count: number): string {
  return count === 1 ? "1 difference" : `${count} differences`;
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
