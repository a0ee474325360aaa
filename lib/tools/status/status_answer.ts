/** The status as a report: what is wrong first, then the Services and the other controllers. Pure. */
import {
  isSkipped,
  readyCount,
  type ServiceCounts,
  severity,
  type StatusEndpoint,
  type StatusService,
} from "../../app/service/service_status.ts";
import type { ControllerStatus, LoopStatus } from "../../engine/controller.ts";
import { loopText } from "../../engine/loop_id.ts";
import { countText } from "../../log/count_text.ts";
import { printableText } from "../../log/printable_text.ts";
import type { ProblemKind } from "../../metrics/metric_table.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import type { Report, Row, Tone } from "../report.ts";
import { ageText, durationText, loadNotes, operationsText, trafficText } from "./number_texts.ts";
import type { StatusReport } from "./status_report.ts";

interface StatusOptions {
  /** Formats a moment in milliseconds since 1970, e.g. as `2s ago`. */
  readonly time: (at: number) => string;
  /** Only Services that {@linkcode matchesFilter} selects. @default {all} */
  readonly filter?: string;
  /** Whether tables list all Services, no part follows the problems, or more Services are only counted. @default {"few"} */
  readonly show?: "all" | "few" | "problems";
  /** Problems beyond these are counted. @default {30} */
  readonly mostProblems?: number;
}

/** From here on, Services are only counted. */
const MANY_SERVICES = 30;
/** Endpoints beyond these are counted. */
const MOST_ENDPOINTS = 8;
/** A Service may have 100,000 frontends. */
const MOST_ADDRESSES = 64;
/** Addresses with a problem come first, because further ones are only counted. */
const STATES: readonly ServedAddress["state"][] = ["quarantined", "refusing", "serving"];

/** Formats moments by their distance from now: `2s ago`, `in 12s`. */
export function agesAt(now: number): StatusOptions["time"] {
  return (at) => at > now ? `in ${ageText(at - now)}` : `${ageText(now - at)} ago`;
}

/** The whole status. */
export function statusAnswer(report: StatusReport, options: StatusOptions): Report {
  const { version, pid, phase, startedAt, node, sources, traffic, families, controllers = [] } =
    report;
  const { time, filter = "", show = "few", mostProblems = 30 } = options;
  const problems = statusProblems(report, options);
  const tone = (["bad", "warning"] as const).find((each) =>
    problems.some(({ tone }) => tone === each)
  );
  // Those that a brief status counts without naming them. A filter cannot select them.
  const unnamed = filter !== "" ? 0 : families.reduce(
    (sum, family) => sum + countsOf(family).unhealthy - family.services.filter(isUnhealthy).length,
    0,
  );
  const more = Math.max(0, problems.length - mostProblems) + unnamed;
  const selected = families.map(({ services }) => selectedServices(services, filter));
  const isShown = show === "all" || filter !== "" || selected.flat().length < MANY_SERVICES;
  const parts: readonly Report[] = show === "problems" ? [] : [
    ...families.map((family, index) =>
      familyPart(family, { time, services: isShown ? selected[index]! : undefined, filter })
    ),
    ...controllers.map((each) => controllerPart(each, time)),
  ];
  return {
    title: `kube-relay v${version}  ${phase}, started ${time(Date.parse(startedAt))}  ` +
      `(process ${pid})`,
    tone: phase === "serving" ? "good" : "warning",
    rows: [
      { cells: ["Summary", summaryText(report)], tone: tone ?? "good" },
      { cells: ["Node", node.name + (node.zone === undefined ? "" : `, zone ${node.zone}`)] },
      ...(traffic === undefined
        ? []
        : [{ cells: ["Traffic", `${traffic.open ?? 0} open, ${trafficText(traffic)}`] }]),
      ...sources.map(({ name, state }) => ({ cells: ["Source", `${name}: ${state}`] })),
    ],
    parts: [
      ...(problems.length === 0 ? [] : [{
        title: "Problems",
        rows: [
          ...problems.slice(0, mostProblems),
          ...(more > 0 ? [{ cells: [`and ${more} more; --problems lists all`] }] : []),
        ],
        parts: [],
      }]),
      ...parts,
    ],
  };
}

/** Returns e.g. `6 ServicePorts, 1 in quarantine, 1 unhealthy; 2 problems of sources`. */
function summaryText({ families, controllers = [], sources, hostSettings }: StatusReport): string {
  const loops = [...families, ...controllers.flatMap((each) => each.families)];
  const counts = families.map(countsOf);
  const sum = (name: keyof ServiceCounts) => counts.reduce((total, each) => total + each[name], 0);
  const count = (items: number, text: string) => items === 0 ? [] : [`${items} ${text}`];
  const quarantined = new Set(
    loops.flatMap(({ family, quarantined }) => quarantined.map(({ key }) => `${family} ${key}`)),
  );
  const ofServices = [
    countText(sum("all"), "ServicePort"),
    ...count(quarantined.size, "in quarantine"),
    ...count(sum("unhealthy"), "unhealthy"),
    ...count(sum("withoutEndpoints"), "without endpoints"),
  ].join(", ");
  const others = [
    [loops.filter(({ failures }) => failures > 0), "failing loop"],
    [sources.flatMap(({ problems }) => problems), "source problem"],
    [hostSettings.filter(({ state }) => state === "refused"), "refused kernel setting"],
  ] as const;
  return [
    ofServices,
    ...others.flatMap(([found, noun]) => found.length ? [countText(found.length, noun)] : []),
  ].join("; ");
}

/** Counts Services that are listed; a brief status has the numbers. */
function countsOf({ services, counts }: StatusReport["families"][number]): ServiceCounts {
  return counts ?? {
    all: services.length,
    unhealthy: services.filter(isUnhealthy).length,
    withoutEndpoints: services.filter(({ endpoints }) => endpoints.length === 0).length,
  };
}

/** Whether some or all endpoints are not usable. */
function isUnhealthy(service: StatusService): boolean {
  return [2, 3].includes(severity(service));
}

/** Whatever an administrator should look at. A Service without any endpoint is none: it may be meant. */
export function statusProblems(
  { phase, sources, hostSettings, families, controllers = [] }: StatusReport,
  { time, filter = "" }: Pick<StatusOptions, "filter" | "time">,
): readonly Row[] {
  const rows: Row[] = [];
  const add = (tone: Tone, kind: ProblemKind, text: string, detail: readonly string[] = []) =>
    rows.push({ cells: [kind, text], tone, detail });
  if (phase !== "serving") add("warning", "state", phase);
  const addLoop = (loop: LoopStatus, title: string, nameOf: (key: string) => string) => {
    const { failures, lastError, quarantined } = loop;
    if (failures > 0) {
      add("bad", "sync", `${title}: ${countText(failures, "sync")} failed: ${lastError ?? ""}`);
    }
    for (const { key, address, reason, retryAt } of quarantined) {
      if (!matchesFilter(nameOf(key), filter)) continue;
      const place = address === undefined ? key : `${key} at ${address}`;
      const when = retryAt === undefined ? "at each sync" : time(Date.parse(retryAt));
      add("bad", "quarantine", `${place}: ${reason}`, [`tried again ${when}`]);
    }
  };
  for (const family of families) {
    addLoop(family, family.family, (key) => key.slice(0, key.lastIndexOf("/")));
  }
  for (const { controller, families } of controllers) {
    for (const loop of families) addLoop(loop, loopText({ controller, ...loop }), (key) => key);
  }
  for (const { name, problems } of sources) {
    for (const problem of problems) {
      add("warning", "source", problem.startsWith(name) ? problem : `${name}: ${problem}`);
    }
  }
  for (const { name, wanted, found = "unknown", state, reason = "refused", cure } of hostSettings) {
    if (state !== "refused") continue;
    const detail = cure === undefined ? [] : ["where that is allowed:", cure];
    add("warning", "kernel", `${name} is ${found}, not ${wanted}: ${reason}`, detail);
  }
  for (const service of selectedServices(families.flatMap((each) => each.services), filter)) {
    if (!isUnhealthy(service)) continue;
    const skipped = service.endpoints.filter(isSkipped).slice(0, MOST_ENDPOINTS).map(endpointText);
    add("warning", "service", `${nameOf(service)}: ${healthText(service)}`, skipped);
  }
  return rows;
}

/** The number of problems of each kind, also of a brief status, which names few Services. */
export function problemCounts(report: StatusReport): Readonly<Record<ProblemKind, number>> {
  const counts: Record<ProblemKind, number> = {
    ...{ state: 0, sync: 0, quarantine: 0, source: 0, kernel: 0 },
    service: report.families.reduce((sum, family) => sum + countsOf(family).unhealthy, 0),
  };
  for (const { cells: [kind] } of statusProblems(report, { time: () => "" })) {
    if (kind !== "service") counts[kind as ProblemKind]++;
  }
  return counts;
}

/** The facts and syncs of another controller. */
export function controllerPart(
  { controller, families, facts }: ControllerStatus,
  time: StatusOptions["time"],
): Report {
  const rows = [
    ...facts.map(({ name, text }) => ({ cells: [name, text] })),
    ...families.flatMap((loop): readonly Row[] => [
      { cells: [loop.family, loop.summary] },
      ...loopRows(loop, time),
    ]),
  ];
  return { title: controller, rows, parts: [] };
}

function familyPart(
  family: StatusReport["families"][number],
  { time, services, filter }: {
    readonly time: StatusOptions["time"];
    /** Absent where there are too many. */
    readonly services: readonly StatusService[] | undefined;
    readonly filter: string;
  },
): Report {
  const none = family.services.length === 0 ? "No Services" : `No Service matches '${filter}'`;
  const all = `${
    countText(family.services.length, "ServicePort")
  }: --all lists them, --filter some`;
  return {
    title: family.family,
    rows: [
      { cells: ["Mode", `${family.mode}: ${family.summary}`] },
      ...loopRows(family, time),
      ...(services?.length ? [] : [{ cells: ["Services", services ? none : all] }]),
    ],
    parts: services?.length ? [serviceTable(services)] : [],
  };
}

/** The last sync of a loop. */
export function loopRows(loop: LoopStatus, time: StatusOptions["time"]): readonly Row[] {
  const work = loop.lastSync === undefined
    ? ""
    : ` (${loop.lastSync.full ? "everything" : "changes only"}: ${
      operationsText(loop.lastSync.operations)
    })`;
  const cells = ["Sync", syncText(loop, time, work)];
  return [{ cells, ...(loop.failures > 0 && { tone: "bad" }) }];
}

/** When the last sync was, how long it took, what follows, and what waits or fails since. */
export function syncText(
  { lastSync, pending, failures }: LoopStatus,
  time: StatusOptions["time"],
  notes: string,
): string {
  return [
    lastSync === undefined
      ? `no sync yet${notes}`
      : `${time(Date.parse(lastSync.at))} in ${durationText(lastSync.durationMs)}${notes}`,
    ...(pending ? ["changes wait"] : []),
    ...(failures > 0 ? [`${countText(failures, "sync")} failed`] : []),
  ].join(", ");
}

/** The table of these Services. */
export function serviceTable(services: readonly StatusService[]): Report {
  const columns = ["SERVICE", "HEALTH", "ADDRESSES", "ENDPOINTS"];
  return { title: "", columns, rows: services.map(serviceRow), parts: [] };
}

function serviceRow(service: StatusService): Row {
  const { addresses, endpoints, connections, traffic, otherPorts = [], settings = [] } = service;
  const isBad = severity(service) > 2;
  const counted = [
    ...(connections ? [`${connections} open`] : []),
    ...(traffic === undefined ? [] : [trafficText(traffic)]),
  ].join(", ");
  return {
    cells: [
      nameOf(service),
      healthText(service),
      limited(
        STATES.flatMap((wanted) =>
          addresses.filter(({ state }) => state === wanted).map(addressText).sort()
        ),
        MOST_ADDRESSES,
      ) || "-",
      limited(
        endpoints.toSorted((a, b) => Number(isSkipped(b)) - Number(isSkipped(a))).map(endpointText),
        MOST_ENDPOINTS,
      ) || "none: refused",
    ],
    ...(isBad && { tone: "bad" }),
    detail: [...otherPorts, ...(counted === "" ? [] : [counted]), ...settings],
  };
}

function limited(texts: readonly string[], most: number): string {
  const more = texts.length - most;
  const shown = more > 0 ? [...texts.slice(0, most), `and ${more} more`] : texts;
  // A line end in a reason is not one of the cell.
  return shown.map(printableText).join("\n");
}

/** Whether a filter selects a Service: by the start of `namespace/name:port`, or by a whole word of it. */
export function matchesFilter(name: string, filter: string): boolean {
  return name.startsWith(filter) || name.split(/[/:]/).includes(filter);
}

/** The Services that a filter selects, by name. */
function selectedServices(
  services: readonly StatusService[],
  filter: string,
): readonly StatusService[] {
  return services.filter(({ name }) => matchesFilter(name, filter)).toSorted(compareNames);
}

/**
 * As many Services of all families as a page has room for: those with problems first, then by traffic
 * and name.
 */
export function foremostServices(
  { families }: Pick<StatusReport, "families">,
  filter: string,
  most: number,
): readonly StatusService[] {
  return families.flatMap(({ services }) => services)
    .filter(({ name }) => matchesFilter(name, filter))
    .map((service) => ({ service, rank: severity(service) }))
    .sort((a, b) =>
      b.rank - a.rank ||
      (b.service.traffic?.opened ?? 0) - (a.service.traffic?.opened ?? 0) ||
      compareNames(a.service, b.service)
    ).slice(0, most).map(({ service }) => service);
}

function nameOf({ name, protocol }: StatusService): string {
  return `${name} ${protocol}`;
}

function addressText({ role, address, port, state, load }: ServedAddress): string {
  const label = role === "ClusterIP" ? "" : ` ${role}`;
  const notes = [...(state === "serving" ? [] : [state]), ...(load ? loadNotes(load) : [])];
  return `${formatHostPort(address, port)}${label}${inBrackets(notes)}`;
}

function endpointText({ address, state, local, health }: StatusEndpoint): string {
  const { state: found = "healthy", reason = "", since = "" } = health ?? {};
  const notes = [...(state === "ready" ? [] : [state]), ...(local ? ["local"] : [])];
  if (found === "unchecked") notes.push(...(reason === "" ? [] : [reason]));
  else if (found !== "healthy") notes.push(`${found} since ${since.slice(0, 19)}Z: ${reason}`);
  return address + inBrackets(notes);
}

function inBrackets(notes: readonly string[]): string {
  return notes.length === 0 ? "" : ` (${notes.join(", ")})`;
}

function healthText(service: StatusService): string {
  if (service.quarantined !== undefined) return "in quarantine";
  if (service.endpoints.length === 0) return "no endpoints";
  const text = `${readyCount(service)} of ${service.endpoints.length} ready`;
  const skipped = service.endpoints.filter(isSkipped).length;
  return skipped === 0 ? text : `${text}, ${skipped} unhealthy`;
}

function compareNames(a: StatusService, b: StatusService): number {
  const compare = (left: string, right: string) => left < right ? -1 : Number(left > right);
  return compare(a.name, b.name) || compare(a.protocol, b.protocol);
}
