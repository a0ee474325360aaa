/**
 * The annotations of a Service that kube-relay reads: one table from which parsing and the messages about
 * unusable values derive. docs/annotations.md has their meanings and defaults.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port, tryParsePort } from "../net/port.ts";
import { tryParseServerNameClaim } from "../net/server_name.ts";
import { formatDuration, tryParseDuration } from "./duration.ts";

/** The values that an annotation may have. */
interface Grammar<Value> {
  /** The rule as the end of a sentence: `has to be …`. */
  readonly expected: string;
  /** `undefined` = not valid. */
  parse(text: string): Value | undefined;
  format(value: Value): string;
  /** What is used of a value that is not valid. @default {nothing: the setting has its default} */
  salvage?(text: string): Value;
}

/** One annotation for mode userspace. */
interface AnnotationRow<Value> extends Grammar<Value> {
  readonly name: string;
}

/** The weight of one endpoint, or of all endpoints at an address. */
export interface EndpointWeight extends EndpointPlace {
  readonly weight: number;
}

/** Statuses of HTTP, both ends included. */
export interface StatusRange {
  readonly from: number;
  readonly to: number;
}

/** The Unix socket that replaces the address and port of an endpoint. */
export interface EndpointSocket {
  readonly address: IpAddress;
  readonly port: Port;
  /** Absolute, without `.` and `..`. */
  readonly path: string;
}

/** Begins the name of every annotation of kube-relay. */
export const OWN_PREFIX = "kube-relay.io/";
const MOST_WEIGHT = 256;
/** In bytes: unix(7) has 108, with the zero at the end. */
const LONGEST_SOCKET_PATH = 107;
/** A Service has at most 256 KiB of annotations; each item becomes an object. */
const MOST_ITEMS = 1000;
const LONGEST_PATH = 1024;
const LONGEST_DURATION_MS = 7 * 86_400_000;

/** The annotations for mode userspace, by the name of the setting. */
export const EDGE_ANNOTATIONS = {
  balance: row(
    "balance",
    oneOf(["round-robin", "least-connections", "random-two-choices", "source-hash"] as const),
  ),
  weights: row(
    "endpoint-weights",
    listOf(
      `of weights from 1 to ${MOST_WEIGHT}, such as 10.0.0.1=3, 10.0.0.2:8080=2`,
      parseWeight,
      ({ weight, ...place }: EndpointWeight) => `${formatPlace(place)}=${weight}`,
    ),
  ),
  slowStartMs: row("slow-start", duration(1000, 3_600_000)),
  sendProxy: row("send-proxy-protocol", oneOf(["v1", "v2"] as const)),
  sendProxyUdp: row("send-proxy-protocol-udp", oneOf(["v2"] as const)),
  acceptProxyFrom: row("accept-proxy-protocol-from", addressRanges()),
  acceptProxyUdpFrom: row("accept-proxy-protocol-udp-from", addressRanges()),
  proxyTimeoutMs: row("accept-proxy-protocol-timeout", duration(100, 60_000)),
  unixSockets: row(
    "unix-sockets",
    listOf(
      "of endpoints with an absolute path, such as 127.0.0.1:8080=unix:/run/app/app.sock",
      parseSocket,
      ({ path, ...place }: EndpointSocket) => `${formatPlace(place)}=unix:${path}`,
    ),
  ),
  sni: row(
    "sni",
    // By default, a Service has all of an address: a mistake would take it from others.
    salvaged(
      listOf(
        "of host names in ASCII, such as shop.example.com, *.example.com or *",
        tryParseServerNameClaim,
        String,
      ),
      tryParseServerNameClaim,
    ),
  ),
  maxConnections: row("max-connections", wholeNumber(1, 1_000_000)),
  maxPerClient: row("max-connections-per-client", wholeNumber(1, 1_000_000)),
  maxPerSecond: row("max-new-connections-per-second", wholeNumber(1, 1_000_000)),
  idleMs: row("idle-timeout", duration(1000, LONGEST_DURATION_MS)),
  lifetimeMs: row("max-lifetime", duration(1000, LONGEST_DURATION_MS)),
  healthCheck: row("health-check", oneOf(["tcp", "http"] as const)),
  healthPort: row("health-check-port", wholeNumber(1, 65_535)),
  healthPath: row(
    "health-check-path",
    pattern(
      `has to be a path that begins with /, of at most ${LONGEST_PATH} ASCII characters without blanks`,
      new RegExp(`^/[!-~]{0,${LONGEST_PATH - 1}}$`),
    ),
  ),
  healthHost: row(
    "health-check-host",
    pattern(
      "has to be a host name or an address, with or without a port",
      /^(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/,
    ),
  ),
  healthStatus: row(
    "health-check-status",
    listOf(
      "of statuses from 100 to 599 or ranges of them, such as 200-299, 404",
      parseStatusRange,
      ({ from, to }: StatusRange) => from === to ? `${from}` : `${from}-${to}`,
    ),
  ),
  healthIntervalMs: row("health-check-interval", duration(1000, 3_600_000)),
  healthTimeoutMs: row("health-check-timeout", duration(100, 60_000)),
  healthRise: row("health-check-rise", wholeNumber(1, 100)),
  healthFall: row("health-check-fall", wholeNumber(1, 100)),
  ejectAfter: row("eject-after", wholeNumber(1, 1000)),
  ejectionMs: row("ejection-time", duration(1000, 3_600_000)),
  healthThreshold: row("health-threshold", wholeNumber(0, 100)),
};

/** The name of a setting. */
export type EdgeSettingName = keyof typeof EDGE_ANNOTATIONS;

/** The values of the annotations for mode userspace; absent ones are not given, or unusable. */
export type EdgeValues = {
  readonly [Name in EdgeSettingName]?: typeof EDGE_ANNOTATIONS[Name] extends
    AnnotationRow<infer Value> ? Value : never;
};

/** The schedulers of ip_vs since Linux 4.18, by their names in the kernel. */
export const IPVS_SCHEDULERS = [
  "rr",
  "lc",
  "dh",
  "sh",
  "sed",
  "nq",
  "wrr",
  "wlc",
  "lblc",
  "lblcr",
  "mh",
] as const;

/** Annotations for direct server return, by the names of kube-relay and of kube-router. */
export const DSR_ANNOTATIONS = ["kube-relay.io/dsr", "kube-router.io/service.dsr"] as const;

/**
 * Annotations that mode ipvs parses by the scheduler of the node, by the names of kube-relay and of
 * kube-router.
 */
export const IPVS_ANNOTATIONS = [
  ...DSR_ANNOTATIONS,
  "kube-relay.io/ipvs-scheduler",
  "kube-relay.io/ipvs-scheduler-flags",
  "kube-router.io/service.scheduler",
  "kube-router.io/service.schedflags",
] as const;

/** Every annotation of a Service that a mode reads. */
export const MODE_ANNOTATIONS: readonly string[] = [
  ...IPVS_ANNOTATIONS,
  ...Object.values(EDGE_ANNOTATIONS).map(({ name }) => name),
];

/** Annotations of other readers whose values can be checked without their settings. */
const OTHER_ROWS: readonly AnnotationRow<unknown>[] = [
  row("dsr", lenient(oneOf(["tunnel"]))),
  row("ipvs-scheduler", lenient(oneOf(IPVS_SCHEDULERS))),
  row("load-balancer-ips", lenient(listOf("of IP addresses", tryParseIpAddress, String))),
];

/** Why the value of an annotation of kube-relay is not used; `undefined` = it is, or is not checked here. */
export function annotationFault(name: string, text: string): string | undefined {
  const rows: readonly AnnotationRow<unknown>[] = [
    ...Object.values<AnnotationRow<unknown>>(EDGE_ANNOTATIONS),
    ...OTHER_ROWS,
  ];
  const found = rows.find((each) => each.name === name);
  return found && found.parse(text.trim()) === undefined ? found.expected : undefined;
}

function row<Value>(name: string, grammar: Grammar<Value>): AnnotationRow<Value> {
  return { name: `${OWN_PREFIX}${name}`, ...grammar };
}

function oneOf<Choice extends string>(choices: readonly Choice[]): Grammar<Choice> {
  return {
    expected: choices.length === 1
      ? `has to be ${choices[0]}`
      : `has to be one of ${choices.join(", ")}`,
    parse: (text) => choices.find((choice) => choice === text),
    format: (choice) => choice,
  };
}

/** Ignores case and empty items. */
function lenient<Value>({ parse, ...grammar }: Grammar<Value>): Grammar<Value | ""> {
  return {
    expected: grammar.expected,
    parse(text) {
      const items = text.toLowerCase().split(",").map((item) => item.trim()).filter(Boolean);
      return items.length === 0 ? "" : parse(items.join(","));
    },
    format: String,
  };
}

function wholeNumber(least: number, most: number): Grammar<number> {
  return {
    expected: `has to be a whole number between ${least} and ${most}`,
    parse: (text) => {
      const number = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
      return number >= least && number <= most ? number : undefined;
    },
    format: String,
  };
}

/** A text as it is. */
function pattern(expected: string, allowed: RegExp): Grammar<string> {
  return {
    expected,
    parse: (text) => allowed.test(text) ? text : undefined,
    format: (text) => text,
  };
}

function duration(leastMs: number, mostMs: number): Grammar<number> {
  const [least, most] = [formatDuration(leastMs), formatDuration(mostMs)];
  return {
    expected: `has to be a duration between ${least} and ${most}, such as 30s`,
    parse: (text) => {
      const milliseconds = tryParseDuration(text) ?? NaN;
      return milliseconds >= leastMs && milliseconds <= mostMs ? milliseconds : undefined;
    },
    format: formatDuration,
  };
}

function listOf<Item>(
  expected: string,
  parse: (text: string) => Item | undefined,
  format: (item: Item) => string,
): Grammar<readonly Item[]> {
  return {
    expected: `has to be a list, separated by commas, of at most ${MOST_ITEMS} items, ${expected}`,
    parse: (text) => {
      const texts = text.split(",", MOST_ITEMS + 1).map((each) => each.trim());
      const items = texts.flatMap((each) => parse(each) ?? []);
      return items.length === texts.length && items.length <= MOST_ITEMS ? items : undefined;
    },
    format: (items) => items.map(format).join(", "),
  };
}

/** Uses the valid items of a list that is not valid. */
function salvaged<Item>(
  list: Grammar<readonly Item[]>,
  parse: (text: string) => Item | undefined,
): Grammar<readonly Item[]> {
  const itemsOf = (text: string) =>
    text.split(",", MOST_ITEMS).flatMap((each) => parse(each.trim()) ?? []);
  return { ...list, salvage: itemsOf };
}

function addressRanges(): Grammar<readonly Cidr[]> {
  return listOf("of address ranges, such as 192.0.2.0/24", tryParseCidr, (range) => range);
}

/** Where an endpoint is; without a port, at any port. */
export interface EndpointPlace {
  readonly address: IpAddress;
  readonly port?: Port;
}

function parsePlace(text: string): EndpointPlace | undefined {
  const whole = tryParseIpAddress(text);
  if (whole !== undefined) return { address: whole };
  const [, inBrackets, plain, portText] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(text) ??
    [];
  const address = tryParseIpAddress(inBrackets ?? plain ?? "");
  if (address === undefined) return undefined;
  if (portText === undefined) return { address };
  const port = tryParsePort(portText);
  return port === undefined ? undefined : { address, port };
}

function formatPlace({ address, port }: EndpointPlace): string {
  return port === undefined ? address : formatHostPort(address, port);
}

function parseWeight(text: string): EndpointWeight | undefined {
  const [, placeText = "", number = ""] = /^([^=]*)=\s*(\d{1,3})$/.exec(text) ?? [];
  const place = parsePlace(placeText.trim());
  const weight = Number(number);
  return place && weight >= 1 && weight <= MOST_WEIGHT ? { ...place, weight } : undefined;
}

function parseStatusRange(text: string): StatusRange | undefined {
  const [, from, to = from] = /^([1-5]\d\d)(?:\s*-\s*([1-5]\d\d))?$/.exec(text) ?? [];
  const range = { from: Number(from), to: Number(to) };
  return range.from <= range.to ? range : undefined;
}

function parseSocket(text: string): EndpointSocket | undefined {
  const [, placeText = "", path = ""] = /^([^=]*)=\s*unix:(\/.*)$/.exec(text) ?? [];
  const { address, port } = parsePlace(placeText.trim()) ?? {};
  const isPlain = path.slice(1).split("/").every((part) => !["", ".", ".."].includes(part)) &&
    // deno-lint-ignore no-control-regex -- the path becomes part of log lines
    !/[\x00-\x1f\x7f]/.test(path) &&
    new TextEncoder().encode(path).length <= LONGEST_SOCKET_PATH;
  return address && port && isPlain ? { address, port, path } : undefined;
}
