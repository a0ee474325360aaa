/**
 * What is told of the process and of what it reads and serves beside the data plane.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { OpenFiles } from "../os/open_files.ts";
import { type Instruments, setCounter } from "./instruments.ts";
import { METRICS } from "./metric_table.ts";

/** How far one family is with the changes of objects. */
interface ChangeFigures {
  readonly servicesPending: number;
  /** Since the process began. */
  readonly servicesTotal: number;
  readonly endpointsPending: number;
  /** Since the process began. */
  readonly endpointsTotal: number;
}

/** One request to the API server that was answered, or was not. */
interface ApiAnswer {
  readonly method: "GET" | "POST" | "PATCH";
  /** Host and port of the server. */
  readonly host: string;
  /** The HTTP status; `undefined` = no answer came. */
  readonly status: number | undefined;
  /** Until the answer began; `undefined` for watches, which are not measured. */
  readonly seconds?: number;
}

/** What came of a change of the configuration file. */
type ConfigReload = typeof METRICS.configReloads.labels.result[number];

/** Told of everything that is no sync. */
export interface ProcessInstruments {
  /** Figures replace those told before; those of the families are added up, as upstream does. */
  setChanges(family: IpFamily, figures: ChangeFigures): void;
  healthAnswered(path: "healthz" | "livez", code: 200 | 503): void;
  /** Listening on a healthCheckNodePort failed. */
  healthBindFailed(): void;
  /** The configuration file changed. */
  configReloaded(result: ConfigReload): void;
  /** How many settings of the machine are needed and could not be made. */
  setHostSettingsRefused(count: number): void;
  apiAnswered(answer: ApiAnswer): void;
  /** Seconds since the API server was last heard of, by a kind of object or the connection itself. */
  setSourceAge(resource: string, seconds: number): void;
  /** Totals of what had to be done again; they replace those told before. */
  setRepetitions(
    resource: string,
    totals: { readonly watchFailures: number; readonly relists: number },
  ): void;
  setLargestEventLoopDelay(seconds: number): void;
  /** Figures replace those told before. */
  setOpenFiles(files: Pick<OpenFiles, "limit" | "open" | "refused">): void;
  /** Errors since the start that nothing caught. */
  setUncaughtErrors(count: number): void;
}

/** The methods over the instruments. */
export function processInstruments(its: Instruments): ProcessInstruments {
  return {
    ...changeMethods(its),
    ...sourceMethods(its),
    healthAnswered(path: "healthz" | "livez", code: 200 | 503) {
      const counter = path === "healthz" ? its.healthzAnswers : its.livezAnswers;
      counter.inc({ code: String(code) });
    },
    healthBindFailed: () => its.healthBindFailures.inc(),
    configReloaded: (result: ConfigReload) => its.configReloads.inc({ result }),
    setHostSettingsRefused: (count: number) => its.hostSettingsRefused.set(count),
    setLargestEventLoopDelay: (seconds: number) => its.eventLoopDelay.set(seconds),
    setOpenFiles({ limit, open, refused }) {
      its.processMaxFds.set(limit);
      its.openSockets.set({ use: "listener" }, open.listeners);
      its.openSockets.set({ use: "traffic" }, open.traffic);
      for (const [use, count] of refused) setCounter(its.refusedSockets, { use }, count);
    },
    setUncaughtErrors: (count: number) => setCounter(its.uncaughtErrors, {}, count),
  };
}

function changeMethods(its: Instruments) {
  const families = new Map<IpFamily, ChangeFigures>();
  const sum = (key: keyof ChangeFigures) =>
    families.values().reduce((total, figures) => total + figures[key], 0);
  return {
    setChanges(family: IpFamily, figures: ChangeFigures) {
      families.set(family, figures);
      its.serviceChangesPending.set(sum("servicesPending"));
      its.endpointChangesPending.set(sum("endpointsPending"));
      setCounter(its.serviceChanges, {}, sum("servicesTotal"));
      setCounter(its.endpointChanges, {}, sum("endpointsTotal"));
    },
  };
}

function sourceMethods(its: Instruments) {
  return {
    apiAnswered({ method, host, status, seconds }: ApiAnswer) {
      its.apiRequests.inc({ code: statusLabel(status), method, host });
      if (seconds !== undefined) its.apiRequestDuration.observe({ verb: method, host }, seconds);
    },
    setSourceAge(resource: string, seconds: number) {
      its.apiSilence.set({ resource: knownResource(resource) }, seconds);
    },
    setRepetitions(
      resource: string,
      totals: { readonly watchFailures: number; readonly relists: number },
    ) {
      const labels = { resource: knownResource(resource) };
      setCounter(its.watchFailures, labels, totals.watchFailures);
      setCounter(its.relists, labels, totals.relists);
    },
  };
}

/** As client-go has it. What is no status of HTTP would be a series of its own. */
function statusLabel(status: number | undefined): string {
  const known = status !== undefined && status >= 100 && status <= 599;
  return known ? String(status) : "<error>";
}

/** Any other name would be a new series. */
function knownResource(resource: string): string {
  const known: readonly string[] = METRICS.apiSilence.labels.resource;
  return known.includes(resource) ? resource : "other";
}
