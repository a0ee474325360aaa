import type { IpFamily } from "../net/ip_address.ts";
import type { OpenFiles } from "../os/open_files.ts";
import { type Instruments, setCounter } from "./instruments.ts";
import { METRICS } from "./metric_table.ts";

/** The progress of one family with changes of objects. */
interface ChangeFigures {
  readonly servicesPending: number;
  /** Since the process began. */
  readonly servicesTotal: number;
  readonly endpointsPending: number;
  /** Since the process began. */
  readonly endpointsTotal: number;
}

/** One request to the API server, answered or not. */
interface ApiAnswer {
  readonly method: "GET" | "POST" | "PATCH";
  /** Host and port of the server. */
  readonly host: string;
  /** The HTTP status; `undefined` = no answer came. */
  readonly status: number | undefined;
  /** Until the first byte of the answer; `undefined` for watches, which are not measured. */
  readonly seconds?: number;
}

/** The result of a change of the configuration file. */
type ConfigReload = typeof METRICS.configReloads.labels.result[number];

/** Records everything besides syncs. */
export interface ProcessInstruments {
  /** Replaces the former figures; those of the families are added up, as upstream does. */
  setChanges(family: IpFamily, figures: ChangeFigures): void;
  healthAnswered(path: "healthz" | "livez", code: 200 | 503): void;
  /** Listening on a healthCheckNodePort failed. */
  healthBindFailed(): void;
  /** The configuration file changed. */
  configReloaded(result: ConfigReload): void;
  /** Sets the number of required settings of the machine that were refused. */
  setHostSettingsRefused(count: number): void;
  apiAnswered(answer: ApiAnswer): void;
  /**
   * Sets the seconds since the last data from the API server, for a kind of object or the
   * connection.
   */
  setSourceAge(resource: string, seconds: number): void;
  /** Totals of repeated work; they replace the former totals. */
  setRepetitions(
    resource: string,
    totals: { readonly watchFailures: number; readonly relists: number },
  ): void;
  setLargestEventLoopDelay(seconds: number): void;
  /** Replaces the former figures. */
  setOpenFiles(files: Pick<OpenFiles, "limit" | "open" | "refused">): void;
  /** Sets the number of uncaught errors since the start. */
  setUncaughtErrors(count: number): void;
  /** Sets the number of restarts of workers since the start. */
  setWorkerRestarts(count: number): void;
}

/** Creates the methods on the instruments. */
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
    setWorkerRestarts: (count: number) => setCounter(its.workerRestarts, {}, count),
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

/** As client-go does. Anything but an HTTP status would be a series of its own. */
function statusLabel(status: number | undefined): string {
  const known = status !== undefined && status >= 100 && status <= 599;
  return known ? String(status) : "<error>";
}

/** Any other name would be a new series. */
function knownResource(resource: string): string {
  const known: readonly string[] = METRICS.apiSilence.labels.resource;
  return known.includes(resource) ? resource : "other";
}
