/**
 * The status report in the words, order and tones in which people see it. The terminal, the live view
 * and the status page only lay it out. Pure; every text is printable.
 */
import type { ControllerStatus, LoopStatus } from "../../engine/controller.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import { type ControllerName, loopText } from "../../engine/loop_id.ts";
import { printableText } from "../../log/printable_text.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import { durationText, loadNotes, operationsText, trafficText } from "./number_texts.ts";
import { countText } from "../../log/count_text.ts";
import type { StatusReport } from "./status_report.ts";
import type {
  StatusEndpoint,
  StatusFamily,
  StatusService,
} from "../../app/service/service_status.ts";
import type { TonedText } from "../cli/terminal_text.ts";

/** The status without the Services. Times are milliseconds since 1970. */
export interface StatusView {
  /** E.g. `kube-relay v0.1.0`. */
  readonly program: string;
  /** E.g. `process 42`. */
  readonly process: string;
  readonly phase: TonedText;
  readonly startedAt: number;
  /** E.g. `node-a, zone eu-1`. */
  readonly node: string;
  readonly sources: readonly {
    /** E.g. `API server: watching`. */
    readonly text: string;
    readonly problems: readonly string[];
  }[];
  /** Kernel settings that could not be applied, with the command for an administrator. */
  readonly settings: readonly { readonly text: string; readonly command?: string }[];
  /** The controller of Services comes first. */
  readonly controllers: readonly ControllerView[];
}

/** One controller. */
export interface ControllerView {
  /** Absent for the controller of Services, which is the main part of the status. */
  readonly name?: ControllerName;
  readonly families: readonly FamilyView[];
  readonly facts: ControllerStatus["facts"];
}

/** One IP family of a controller. */
export interface FamilyView {
  readonly name: IpFamily;
  /** E.g. `IPv4`, and `network-policy IPv4` of a controller with a name. */
  readonly title: string;
  /** The mode of Services; the name of another controller. */
  readonly mode: string;
  /** E.g. `userspace: one address each on lo`; of another controller without its name. */
  readonly dataPlane: string;
  /** E.g. `1.2 ms` and `changes only: 2 lines`. */
  readonly lastSync?: { readonly at: number; readonly duration: string; readonly work: string };
  /** E.g. `changes wait`. */
  readonly notes: readonly TonedText[];
  readonly error?: string;
  readonly quarantine: readonly {
    /** E.g. `default/web:http/TCP at 10.96.0.10:80/TCP: address in use`. */
    readonly text: string;
    /** Absent where each sync tries again. */
    readonly retryAt?: number;
  }[];
}

/** One ServicePort. */
export interface ServiceView {
  readonly name: string;
  readonly protocol: string;
  readonly health: TonedText;
  readonly isQuarantined: boolean;
  readonly addresses: readonly string[];
  readonly endpoints: readonly string[];
  /** E.g. `3 open`, `999 B in, 3.5 MB out`; absent where nothing is counted. */
  readonly traffic?: readonly string[];
}

/** Endpoints beyond these are counted. */
const MOST_ENDPOINTS = 8;
/** A Service may have 100,000 frontends. */
const MOST_ADDRESSES = 64;
/** Addresses with a problem come first, because further ones are only counted. */
const STATES: readonly ServedAddress["state"][] = ["quarantined", "refusing", "serving"];

/** The report in readable form. `filter` also selects from the quarantine. */
export function statusView(report: StatusReport, filter = ""): StatusView {
  const { version, pid, phase, startedAt, node, sources } = report;
  return {
    program: `kube-relay v${version}`,
    process: `process ${pid}`,
    phase: { tone: phase === "serving" ? "good" : "warning", text: phase },
    startedAt: Date.parse(startedAt),
    node: printableText(`${node.name}${node.zone === undefined ? "" : `, zone ${node.zone}`}`),
    sources: sources.map(({ name, state, problems }) => ({
      text: printableText(`${name}: ${state}`),
      problems: problems.map(printableText),
    })),
    settings: refusedSettings(report),
    controllers: [
      {
        families: report.families.map((family) =>
          familyView(family, {
            title: family.family,
            mode: family.mode,
            filter,
            nameOf: withoutProtocol,
          })
        ),
        facts: [],
      },
      ...(report.controllers ?? []).map((each) => controllerView(each, filter)),
    ],
  };
}

function controllerView(
  { controller, families, facts }: ControllerStatus,
  filter: string,
): ControllerView {
  return {
    name: controller,
    families: families.map((loop) => ({
      ...familyView(loop, {
        title: loopText({ controller, ...loop }),
        mode: controller,
        filter,
        nameOf: (key) => key,
      }),
      dataPlane: printableText(loop.summary),
    })),
    facts: facts.map(({ name, text }) => ({
      name: printableText(name),
      text: printableText(text),
    })),
  };
}

/** Whether a filter selects a Service: by the start of `namespace/name:port`, or by a whole word of it. */
export function matchesFilter(name: string, filter: string): boolean {
  return name.startsWith(filter) || name.split(/[/:]/).includes(filter);
}

/** The Services that a filter selects, by name. */
export function serviceViews(
  { services }: Pick<StatusFamily, "services">,
  filter: string,
): readonly ServiceView[] {
  return services.filter(({ name }) => matchesFilter(name, filter)).toSorted(compareNames)
    .map(serviceView);
}

/**
 * As many Services of all families as a page has room for: those with problems first, then by traffic
 * and name.
 */
export function foremostServices(
  { families }: Pick<StatusReport, "families">,
  { filter, most }: { readonly filter: string; readonly most: number },
): { readonly shown: readonly ServiceView[]; readonly all: number } {
  const all = families.flatMap(({ services }) => services);
  const shown = all.filter(({ name }) => matchesFilter(name, filter))
    .toSorted((a, b) =>
      severity(b) - severity(a) || (b.traffic?.opened ?? 0) - (a.traffic?.opened ?? 0) ||
      compareNames(a, b)
    ).slice(0, most).map(serviceView);
  return { shown, all: all.length };
}

function refusedSettings({ hostSettings }: StatusReport): StatusView["settings"] {
  return hostSettings.filter(({ state }) => state === "refused")
    .map(({ name, wanted, found = "unknown", reason = "refused", cure }) => ({
      text: printableText(`${name} is ${found}, not ${wanted}: ${reason}`),
      ...(cure !== undefined && { command: printableText(cure) }),
    }));
}

function familyView(
  { family, summary, lastSync, pending, failures, lastError, quarantined }: LoopStatus,
  { title, mode, filter, nameOf }: Pick<FamilyView, "title" | "mode"> & {
    readonly filter: string;
    /** Returns the part of a key that a filter matches. */
    readonly nameOf: (key: string) => string;
  },
): FamilyView {
  const notes: readonly (false | TonedText)[] = [
    lastSync === undefined && { tone: "plain", text: "no sync yet" },
    pending && { tone: "plain", text: "changes wait" },
    failures > 0 && { tone: "bad", text: `${countText(failures, "sync")} failed` },
  ];
  return {
    name: family,
    title,
    mode,
    dataPlane: `${mode}: ${printableText(summary)}`,
    ...(lastSync && {
      lastSync: {
        at: Date.parse(lastSync.at),
        duration: durationText(lastSync.durationMs),
        work: `${lastSync.full ? "everything" : "changes only"}: ` +
          operationsText(lastSync.operations),
      },
    }),
    notes: notes.filter((note) => note !== false),
    ...(lastError !== undefined && { error: printableText(lastError) }),
    quarantine: quarantined
      .filter(({ key }) => matchesFilter(nameOf(key), filter))
      .map(quarantineView),
  };
}

function withoutProtocol(servicePort: string): string {
  return servicePort.slice(0, servicePort.lastIndexOf("/"));
}

function quarantineView({ key, address, reason, retryAt }: Quarantined<string>) {
  const place = address === undefined ? key : `${key} at ${address}`;
  return {
    text: printableText(`${place}: ${reason}`),
    ...(retryAt !== undefined && { retryAt: Date.parse(retryAt) }),
  };
}

function serviceView(service: StatusService): ServiceView {
  const { name, protocol, addresses, endpoints, connections, settings, traffic } = service;
  const hasNotes = connections !== undefined || traffic !== undefined || settings !== undefined;
  const more = endpoints.length - MOST_ENDPOINTS;
  const moreAddresses = addresses.length - MOST_ADDRESSES;
  return {
    name: printableText(name),
    protocol,
    health: { tone: severity(service) > 0 ? "bad" : "good", text: healthText(service) },
    isQuarantined: service.quarantined !== undefined,
    addresses: [
      ...addressTexts(addresses).slice(0, MOST_ADDRESSES),
      ...(moreAddresses > 0 ? [`and ${moreAddresses} more`] : []),
    ],
    endpoints: endpoints.length === 0 ? ["none: refused"] : [
      ...endpoints.toSorted((a, b) => Number(isSkipped(b)) - Number(isSkipped(a)))
        .slice(0, MOST_ENDPOINTS).map(endpointText),
      ...(more > 0 ? [`and ${more} more`] : []),
    ],
    ...(hasNotes && {
      traffic: [
        ...(connections ? [`${connections} open`] : []),
        ...(traffic === undefined ? [] : [trafficText(traffic)]),
        ...(settings ?? []).map(printableText),
      ],
    }),
  };
}

function addressTexts(addresses: readonly ServedAddress[]): readonly string[] {
  return STATES.flatMap((wanted) =>
    addresses.filter(({ state }) => state === wanted).map(addressText).sort()
  );
}

function addressText({ role, address, port, state, load }: ServedAddress): string {
  const label = role === "ClusterIP" ? "" : ` ${role}`;
  const notes = [...(state === "serving" ? [] : [state]), ...(load ? loadNotes(load) : [])];
  return `${formatHostPort(address, port)}${label}${inBrackets(notes)}`;
}

function endpointText({ address, state, local, health }: StatusEndpoint): string {
  return address + inBrackets([
    ...(state === "ready" ? [] : [state]),
    ...(local ? ["local"] : []),
    ...(health ? healthNotes(health) : []),
  ]);
}

function healthNotes(
  { state, reason = "", since }: NonNullable<StatusEndpoint["health"]>,
): readonly string[] {
  if (state === "unchecked") return reason === "" ? [] : [printableText(reason)];
  if (state === "healthy") return [];
  return [`${state} since ${since.slice(0, 19)}Z: ${printableText(reason)}`];
}

/** Whether new connections skip an endpoint. */
function isSkipped({ health }: StatusEndpoint): boolean {
  return health?.state === "unhealthy" || health?.state === "ejected";
}

function inBrackets(notes: readonly string[]): string {
  return notes.length === 0 ? "" : ` (${notes.join(", ")})`;
}

function readyCount({ endpoints }: StatusService): number {
  return endpoints.filter(({ state }) => state === "ready").length;
}

function healthText(service: StatusService): string {
  if (service.quarantined !== undefined) {
    return printableText(`in quarantine: ${service.quarantined}`);
  }
  if (service.endpoints.length === 0) return "no endpoints";
  const text = `${readyCount(service)} of ${service.endpoints.length} ready`;
  const skipped = service.endpoints.filter(isSkipped).length;
  return skipped === 0 ? text : `${text}, ${skipped} unhealthy`;
}

/** 0 = healthy, 3 = in quarantine. */
function severity(service: StatusService): number {
  if (service.quarantined !== undefined) return 3;
  const ready = readyCount(service) - service.endpoints.filter(isSkipped).length;
  if (ready <= 0) return 2;
  return ready < service.endpoints.length ? 1 : 0;
}

function compareNames(a: StatusService, b: StatusService): number {
  return compare(a.name, b.name) || compare(a.protocol, b.protocol);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
