/** The report of `diff`, by Service, and its JSON. Pure. */
import type { Quarantined } from "../../engine/data_plane.ts";
import { loopText } from "../../engine/loop_id.ts";
import { countText } from "../../log/count_text.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type { Report, Row } from "../report.ts";
import { ageText, timeTexts } from "../status/number_texts.ts";
import {
  countDifferences,
  type FamilyDifference,
  type NodeDifference,
  type RoutingComparison,
  unrepaired,
} from "./node_difference.ts";

/** Most differences of one Service. */
const MOST_SHOWN = 12;
/** Most lines of one object. */
const MOST_LINES = 6;

/** What was found in each family, the differences by Service, and their number at the end. */
export function differenceReport(
  difference: NodeDifference,
  /** Milliseconds since 1970, for the time of the next try. */
  now: number,
  { timeZone, isRepairable = true }: {
    /** Name of a time zone. @default {that of the machine} */
    readonly timeZone?: string;
    /** Whether a running process can repair it. @default {true} */
    readonly isRepairable?: boolean;
  } = {},
): Report {
  const { mode, nodeName, families, routing } = difference;
  return {
    title: "",
    rows: [
      { cells: ["Node", `${nodeName}, mode ${mode}`] },
      ...families.map(familyRow),
      ...(routing ? routingRows(routing) : []),
    ],
    parts: [
      ...families.flatMap(familyParts),
      ...(routing?.differences.length ? [routingPart(routing)] : []),
      ...families.flatMap((family) => quarantineParts(family, now, timeZone)),
      {
        title: "",
        rows: [...refusedRows(difference), verdict(difference, isRepairable)],
        parts: [],
      },
    ],
  };
}

function familyName({ controller = "service", family }: FamilyDifference): string {
  return loopText({ controller, family });
}

function familyRow(family: FamilyDifference): Row {
  const { differences, repair } = family;
  const { failures = 0, lastError = "" } = family;
  const shown = repair?.found ?? differences;
  const detail = [
    ...(repair?.error === undefined ? [] : [`the repair failed: ${repair.error}`]),
    ...(failures === 0 ? [] : [
      `${countText(failures, "sync")} failed: ${lastError}`,
      "kube-relay tries it again, and then writes everything that differs",
    ]),
  ];
  const found = () => {
    const repaired = Math.max(0, shown.length - unrepaired(family).length);
    const suffix = repair ? `, of which ${repaired} repaired` : "";
    return countText(shown.length, "difference") + suffix;
  };
  return {
    cells: [familyName(family), shown.length === 0 ? "as planned" : found()],
    ...(detail.length > 0 && { tone: "bad", detail }),
  };
}

function familyParts(family: FamilyDifference): readonly Report[] {
  const { controller, differences, repair } = family;
  const shared = controller ? "For all NetworkPolicies" : "For all Services";
  const titled = Map.groupBy(
    repair?.found ?? differences,
    ({ key }) => key === undefined ? shared : controller ? key : servicePortTitle(key),
  );
  const sorted = [...titled].sort(([one], [other]) =>
    Number(one === shared) - Number(other === shared) || (one < other ? -1 : 1)
  );
  return sorted.map(([title, group]) => ({
    title: `${familyName(family)}, ${title}`,
    rows: limited(group.map(differenceRow)),
    parts: [],
  }));
}

/** Addresses of layer 2, the network of pods, and the BGP daemon. */
function routingRows({ differences, problem }: RoutingComparison): readonly Row[] {
  const { length } = differences;
  const found = length === 0 ? "as planned" : countText(length, "difference");
  return [
    ...(problem === undefined
      ? []
      : [{ cells: ["Routing", `BGP was not compared: ${problem}`], tone: "warning" } as const]),
    ...(problem !== undefined && length === 0 ? [] : [{ cells: ["Routing", found] }]),
  ];
}

function routingPart({ differences }: RoutingComparison): Report {
  const note = "kube-relay repairs them by itself; 'kube-relay status' says what hinders it";
  const rows = [...limited(differences.map(differenceRow)), { cells: [note] }];
  return { title: "Routing", rows, parts: [] };
}

function limited(rows: readonly Row[]): readonly Row[] {
  const more = rows.length - MOST_SHOWN;
  if (more <= 0) return rows;
  return [...rows.slice(0, MOST_SHOWN), { cells: [`and ${more} more; --json has all`] }];
}

/** Items that were left out, with the reason. */
function quarantineParts(
  family: FamilyDifference,
  now: number,
  timeZone: string | undefined,
): readonly Report[] {
  const { controller, quarantined } = family;
  if (quarantined.length === 0) return [];
  const rows = quarantined.map(({ key, address, reason, retryAt }): Row => ({
    cells: [
      `${[controller ? key : servicePortTitle(key), address ?? []].flat().join(" ")}: ${reason}`,
    ],
    detail: [retryText(retryAt, now, timeZone)],
  }));
  const title = `${familyName(family)}, in quarantine (left out until tried again; no difference)`;
  return [{ title, tone: "warning", rows: limited(rows), parts: [] }];
}

function differenceRow({ kind, object, name, wanted, found, cure }: DataPlaneDifference): Row {
  return {
    cells: [kind, `${object} ${name}`],
    tone: kind === "extra" ? "warning" : "bad",
    detail: [
      ...linesOf("wanted", wanted),
      ...linesOf("found", found),
      ...(cure === undefined ? [] : [cure]),
    ],
  };
}

function linesOf(label: string, text: string | undefined): readonly string[] {
  if (text === undefined) return [];
  const lines = `${label} ${text}`.split("\n");
  const more = lines.length - MOST_LINES;
  return more > 0 ? [...lines.slice(0, MOST_LINES), `and ${more} more lines`] : lines;
}

function refusedRows({ families }: NodeDifference): readonly Row[] {
  const names = families.flatMap(({ controller, repair }) =>
    (repair?.refused ?? []).map((key) => controller ? key : servicePortTitle(key))
  );
  return limited(names.map((name): Row => ({
    cells: [`${name} could not be repaired and is in quarantine now`],
    tone: "bad",
  })));
}

function verdict(difference: NodeDifference, isRepairable: boolean): Row {
  const left = countDifferences(difference);
  const isRepair = difference.families.some(({ repair }) => repair !== undefined);
  if (left > 0) {
    const repairable = difference.families
      .flatMap(({ differences, failures = 0 }) => failures > 0 ? [] : differences)
      .filter(({ cure }) => cure === undefined).length;
    const which = repairable < left ? `${repairable} of them` : left === 1 ? "it" : "them";
    const cure = isRepair || !isRepairable || repairable === 0
      ? ""
      : `; 'kube-relay diff --repair' repairs ${which}`;
    const text = `${countText(left, "difference")}${isRepair ? " left" : ""}${cure}`;
    return { cells: [text], tone: "bad" };
  }
  if (difference.routing?.problem !== undefined) {
    return { cells: ["The machine is as planned, as far as it was compared"], tone: "warning" };
  }
  const isQuarantined = difference.families.some(({ quarantined }) => quarantined.length > 0);
  const but = isQuarantined ? ", except for the quarantine" : "";
  const text = `${isRepair ? "All is as planned now" : "The machine is as planned"}${but}`;
  return { cells: [text], tone: "good" };
}

function retryText(retryAt: string | undefined, now: number, timeZone: string | undefined): string {
  if (retryAt === undefined) return "checked again with each sync";
  const { day, time } = timeTexts(timeZone);
  const waitMs = Date.parse(retryAt) - now;
  return waitMs > 0
    ? `tried again in ${ageText(waitMs)}, from ${time(retryAt)} on`
    : `to be tried again since ${day(retryAt)} ${time(retryAt)}`;
}

/** `namespace/name:port TCP` of the key `namespace/name:port/TCP`. */
export function servicePortTitle(key: string): string {
  return key.replace(/\/([^/]*)$/, " $1");
}

/** The data of `--json`; docs/diff.md describes its fields. */
export function differenceJson(difference: NodeDifference): object {
  const { mode, nodeName, families, routing } = difference;
  return {
    node: nodeName,
    mode,
    differences: countDifferences(difference),
    families: families.map(({ controller, family, differences, quarantined, repair, ...loop }) => ({
      ...(controller && { controller }),
      family,
      differences: differences.map(withService),
      quarantined: quarantined.map(({ key, ...rest }) =>
        controller ? { policy: key, ...rest } : withService({ key, ...rest })
      ),
      ...(loop.failures !== undefined && { failures: loop.failures, lastError: loop.lastError }),
      ...(repair && {
        repair: { ...repair, found: repair.found.map(withService) },
      }),
    })),
    ...(routing && { routing }),
  };
}

function withService({ key, ...rest }: DataPlaneDifference | Quarantined<string>): object {
  if (key === undefined) return rest;
  const [service] = key.slice(0, key.lastIndexOf("/")).split(":");
  return { service, servicePort: key, ...rest };
}
