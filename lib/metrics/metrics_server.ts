/**
 * The pages of the metrics port: kube-proxy's paths, and nothing that reveals more of the cluster.
 * Any client that reaches the port may read them.
 *
 * @module
 */
import { isSecretName, REDACTED, redactText } from "../log/redact.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { type Clock, systemClock } from "../os/clock.ts";
import {
  answerJson,
  answerNotFound,
  answerText,
  isLocalRequest,
  refuseWriting,
} from "../os/plain_answer.ts";
import { Counter, Gauge, Registry } from "./prom_client.ts";
import { type MetricsAnswer, Scrape, SharedScrape } from "./scrape.ts";

type Page = (request: Request, peer: IpAddress | undefined) => Response | Promise<Response>;

/** Upstream's key for the configuration. */
const CONFIGZ_KEY = "kubeproxy.config.k8s.io";
const PPROF = /^\/debug\/pprof(\/|$)/;

/**
 * Answers the requests of the metrics port. `peer` is the client's address. A path whose content is
 * `undefined` does not exist.
 */
export function createMetricsHandler(
  { clock = systemClock, render, startedAt, mode, configuration, flags, status, setVerbosity }: {
    /** @default {systemClock} */
    readonly clock?: Clock;
    /**
     * Called for a request of `/metrics`, but never twice at once. Only Prometheus' text format, as
     * upstream; prom-client 15's OpenMetrics would rename counters (`_total_total`).
     */
    readonly render: () => Promise<MetricsAnswer>;
    /** Milliseconds since 1970 at which the process started. */
    readonly startedAt: number;
    /** The mode that `/proxyMode` returns. */
    readonly mode: string;
    /** The configuration in the form of its file, for `/configz`. */
    readonly configuration: () => unknown;
    /** All flags by name, without dashes, with their values as text, for `/flagz`. */
    readonly flags: (() => Readonly<Record<string, string>>) | undefined;
    /** The build, for `/statusz`. */
    readonly status: Readonly<Record<"version" | "release" | "runtime", string>> | undefined;
    /** Sets the verbosity, for `/debug/flags/v`; only present if profiling is on. */
    readonly setVerbosity: ((level: number) => void) | undefined;
  },
): Page {
  const shared = new SharedScrape({ clock }, render);
  const slis = createSlis(startedAt);
  const healthz: Page = ({ url }) => answerHealthz(new URL(url), slis.checked);
  const pages = new Map<string, Page>([
    [
      "/metrics",
      async (request) => refuseWriting(request) ?? await (await shared.get()).answer(request),
    ],
    ["/metrics/slis", slis.page],
    ["/healthz", healthz],
    ["/healthz/ping", healthz],
    ["/proxyMode", () => answerText(mode)],
    [
      "/configz",
      (request) => refuseWriting(request) ?? answerJson({ [CONFIGZ_KEY]: configuration() }),
    ],
  ]);
  if (flags) {
    pages.set("/flagz", (request) => {
      const shown = Object.entries(flags())
        .sort(([left], [right]) => left < right ? -1 : 1)
        .map(([name, value]) => [name, isSecretName(name) ? REDACTED : redactText(value)] as const);
      const lines = shown.map(([name, value]) => `${name}=${value}`);
      return answerZPage(request, "Flagz", { flags: Object.fromEntries(shown) }, lines);
    });
  }
  if (setVerbosity) {
    pages.set("/debug/flags/v", (request, peer) => answerLogLevel(request, peer, setVerbosity));
  }
  if (status) {
    const { version, release, runtime } = status;
    // Without fractions of a second, as metav1.Time.
    const startTime = new Date(startedAt).toISOString().replace(/\.\d+Z$/, "Z");
    pages.set("/statusz", (request) => {
      const paths = [...pages.keys()].sort();
      const uptimeSeconds = Math.max(0, Math.floor((clock.wallNow() - startedAt) / 1000));
      const fields = {
        ...{ startTime, uptimeSeconds, goVersion: runtime },
        ...{ binaryVersion: version, emulationVersion: release, paths },
      };
      return answerZPage(request, "Statusz", fields, [
        `Started: ${startTime}`,
        `Up: ${durationText(uptimeSeconds)}`,
        `Runtime: ${runtime}`,
        `Binary version: ${version}`,
        `Emulation version: ${release}`,
        `Paths: ${paths.join(" ")}`,
      ]);
    });
  }
  return (request, peer) => {
    const { pathname } = new URL(request.url);
    const page = pages.get(pathname);
    if (page) return page(request, peer);
    return PPROF.test(pathname)
      ? answerText("There are no profiles here: this is no Go program\n", 404)
      : answerNotFound();
  };
}

/** The only check is whether the port answers, so it cannot fail. */
const CHECKS: readonly string[] = ["ping"];

/** The name of the checks in `/metrics/slis`. */
const HEALTHZ = "healthz";

/**
 * Counts the checks of `/healthz` for `/metrics/slis` (KEP-3466), separately from other metrics, because it
 * may be scraped every second.
 */
function createSlis(startedAt: number) {
  const registry = new Registry();
  const registers = [registry];
  const start = "process_start_time_seconds";
  const startHelp = "Unix time at which the process started";
  new Gauge({ name: start, help: startHelp, registers }).set(startedAt / 1000);
  const state = new Gauge({
    name: "kubernetes_healthcheck",
    help: "Result of the last health check: 1 passed, 0 failed",
    labelNames: ["name", "type"],
    registers,
  });
  const total = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "Health checks, by result",
    labelNames: ["name", "type", "status"],
    registers,
  });
  const page: Page = async (request, peer) => {
    // DELETE is only for this machine: other clients cannot change anything through the port.
    if (request.method === "DELETE" && isLocalRequest(request, peer)) {
      state.reset();
      total.reset();
      return answerText("metrics reset\n");
    }
    const { contentType } = registry;
    return refuseWriting(request) ??
      await new Scrape({ contentType, body: await registry.metrics() }).answer(request);
  };
  return {
    checked(name: string): void {
      state.set({ name, type: HEALTHZ }, 1);
      total.inc({ name, type: HEALTHZ, status: "success" });
    },
    page,
  };
}

/**
 * Answers `/healthz`, with `?verbose` check by check, with `?exclude=name` without one of them, and
 * `/healthz/name`. Calls `onChecked` for each check of `/healthz`.
 */
function answerHealthz(url: URL, onChecked: (check: string) => void): Response {
  const check = url.pathname.slice(`/${HEALTHZ}/`.length);
  if (check !== "") return CHECKS.includes(check) ? answerText("ok") : answerNotFound();
  const unknown = new Set(url.searchParams.getAll("exclude"));
  const lines = CHECKS.map((name) => {
    const state = unknown.delete(name) ? "excluded: ok" : "ok";
    if (state === "ok") onChecked(name);
    return `[+]${name} ${state}\n`;
  });
  if (!url.searchParams.has("verbose")) return answerText("ok");
  const warning = unknown.size > 0
    ? `warn: no health check has the name ${
      [...unknown].sort().map((name) => JSON.stringify(name)).join(", ")
    }\n`
    : "";
  return answerText(`${lines.join("")}${warning}${HEALTHZ} check passed\n`);
}

function durationText(seconds: number): string {
  const pad = (value: number) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${hours} hr ${pad(minutes)} min ${pad(seconds % 60)} sec`;
}

/** Highest verbosity with an effect. */
const MAX_LEVEL = 10;
/** Longer than any level; a longer body is not read to the end. */
const MAX_BODY_BYTES = 16;

/**
 * `/debug/flags/v`: sets the verbosity to the number in the body of a PUT; 406 for other methods, as upstream. 404
 * for other machines, and for a name in the Host header, under which a web page could make a
 * browser on this machine ask (DNS rebinding).
 */
async function answerLogLevel(
  request: Request,
  peer: IpAddress | undefined,
  setVerbosity: (level: number) => void,
): Promise<Response> {
  if (!isLocalRequest(request, peer)) return answerNotFound();
  if (request.method !== "PUT") return answerText("Only PUT is answered here\n", 406);
  const text = await readBody(request);
  if (text === undefined || !/^\d{1,2}$/.test(text) || Number(text) > MAX_LEVEL) {
    const found = text === undefined ? "a longer text" : `'${text}'`;
    return answerText(`Expected a level from 0 to ${MAX_LEVEL}, found ${found}\n`, 400);
  }
  setVerbosity(Number(text));
  return answerText(`Verbosity is ${text} now\n`);
}

/** Returns the trimmed body; `undefined` if it is too long. */
async function readBody({ body }: Request): Promise<string | undefined> {
  let text = "";
  if (body === null) return text;
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.length > MAX_BODY_BYTES) return undefined;
  }
  return text.trim();
}

const GROUP = "config.k8s.io";
/** The second is deprecated upstream and has the same content. */
const VERSIONS: readonly (string | undefined)[] = ["v1beta1", "v1alpha1"];
/** Dashboards and scripts look for this component. */
const COMPONENT = "kube-proxy";

/**
 * Answers with the first available form of the Accept header, or with 406: `lines` for people, or an object
 * of `config.k8s.io` with `fields` for programs that request it by its full name (KEP-4827, KEP-4828).
 */
function answerZPage(
  request: Request,
  kind: "Flagz" | "Statusz",
  fields: Readonly<Record<string, unknown>>,
  lines: readonly string[],
): Response {
  const refusal = refuseWriting(request);
  if (refusal) return refusal;
  for (const { type, parameters } of parseAccept(request.headers.get("accept") || "*/*")) {
    if (["*/*", "text/*", "text/plain"].includes(type)) {
      const title = `${COMPONENT} ${kind.toLowerCase()}`;
      const text = lines.map((line) => `${line}\n`).join("");
      return answerText(
        `${title}\nFor people: the form may change from one release to the next.\n\n${text}`,
      );
    }
    const version = parameters.get("v");
    const isNamed = parameters.get("g") === GROUP && parameters.get("as") === kind &&
      VERSIONS.includes(version);
    if (isNamed && ["application/json", "application/yaml"].includes(type)) {
      const metadata = { name: COMPONENT };
      return answerJson({ kind, apiVersion: `${GROUP}/${version}`, metadata, ...fields }, type);
    }
  }
  const wanted = `application/json;g=${GROUP};v=${VERSIONS[0]};as=${kind}`;
  return answerText(`Answers are text/plain or ${wanted}\n`, 406);
}

function parseAccept(header: string) {
  return header.split(",").map((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim());
    const pairs = parameters.map((text) => {
      const [name = "", value = ""] = text.split("=", 2);
      return [name, value] as const;
    });
    return { type: type.toLowerCase(), parameters: new Map(pairs) };
  }).filter(({ parameters }) => !/^0(\.0*)?$/.test(parameters.get("q") ?? ""));
}
