/**
 * The annotations of a Service that kube-relay reads: one table from which parsing, the messages about
 * unusable values and docs/annotations.md derive.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port, tryParsePort } from "../net/port.ts";
import { formatDuration, tryParseDuration } from "./duration.ts";

/** The values that an annotation may have. */
interface Grammar<Value> {
  /** The rule as the end of a sentence: `has to be …`. */
  readonly expected: string;
  /** `undefined` = not valid. */
  parse(text: string): Value | undefined;
  format(value: Value): string;
}

/** One annotation for mode userspace. */
interface AnnotationRow<Value> {
  readonly name: string;
  /** The behaviour without the annotation, for the reference. */
  readonly default: string;
  /** For the reference. */
  readonly meaning: string;
  readonly example: string;
  readonly grammar: Grammar<Value>;
}

/** The ways to choose among endpoints. */
const BALANCE_METHODS = [
  "round-robin",
  "least-connections",
  "random-two-choices",
  "source-hash",
] as const;

/** The weight of one endpoint, or of all endpoints at an address. */
export interface EndpointWeight {
  readonly address: IpAddress;
  readonly port?: Port;
  readonly weight: number;
}

/** The ways to check the health of an endpoint. */
const HEALTH_CHECKS = ["tcp", "http"] as const;

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
  balance: row({
    name: `${OWN_PREFIX}balance`,
    default: "round-robin",
    meaning: "how the endpoint of a new connection or UDP flow is chosen",
    example: "least-connections",
    grammar: oneOf(BALANCE_METHODS),
  }),
  weights: row({
    name: `${OWN_PREFIX}endpoint-weights`,
    default: "1 for each endpoint",
    meaning:
      "shares of endpoints, by address or by address and port; an endpoint that is not named has weight 1",
    example: "10.0.0.1=3, 10.0.0.2:8080=2, [fd00::1]:80=4",
    grammar: listOf(
      `of weights from 1 to ${MOST_WEIGHT}, such as 10.0.0.1=3, 10.0.0.2:8080=2`,
      parseWeight,
      ({ weight, ...place }: EndpointWeight) => `${formatPlace(place)}=${weight}`,
    ),
  }),
  slowStartMs: row({
    name: `${OWN_PREFIX}slow-start`,
    default: "none",
    meaning:
      "the share of an endpoint that appears grows from a tenth to its whole weight in this time; " +
      "without effect on `source-hash`",
    example: "30s",
    grammar: duration({ leastMs: 1000, mostMs: 3_600_000 }),
  }),
  sendProxy: row({
    name: `${OWN_PREFIX}send-proxy-protocol`,
    default: "none",
    meaning: "the PROXY protocol header that precedes each TCP connection to an endpoint",
    example: "v2",
    grammar: oneOf(["v1", "v2"] as const),
  }),
  sendProxyUdp: row({
    name: `${OWN_PREFIX}send-proxy-protocol-udp`,
    default: "none",
    meaning: "the PROXY protocol header that precedes each UDP datagram to an endpoint",
    example: "v2",
    grammar: oneOf(["v2"] as const),
  }),
  acceptProxyFrom: row({
    name: `${OWN_PREFIX}accept-proxy-protocol-from`,
    default: "no client",
    meaning:
      "clients that have to begin each TCP connection with a PROXY protocol header, of either version; " +
      "data of other clients is passed on unchanged",
    example: "192.0.2.0/24, 2001:db8::/32",
    grammar: listOf(
      "of address ranges, such as 192.0.2.0/24",
      tryParseCidr,
      (range: Cidr) => range,
    ),
  }),
  acceptProxyUdpFrom: row({
    name: `${OWN_PREFIX}accept-proxy-protocol-udp-from`,
    default: "no client",
    meaning:
      "clients that have to begin each UDP datagram with a PROXY protocol header of version " +
      "2; datagrams of other clients are passed on unchanged",
    example: "192.0.2.0/24, 2001:db8::/32",
    grammar: listOf(
      "of address ranges, such as 192.0.2.0/24",
      tryParseCidr,
      (range: Cidr) => range,
    ),
  }),
  proxyTimeoutMs: row({
    name: `${OWN_PREFIX}accept-proxy-protocol-timeout`,
    default: "3s",
    meaning: "time for the header of a connection from `accept-proxy-protocol-from`",
    example: "1s",
    grammar: duration({ leastMs: 100, mostMs: 60_000 }),
  }),
  unixSockets: row({
    name: `${OWN_PREFIX}unix-sockets`,
    default: "none",
    meaning:
      "endpoints that are reached by a Unix socket instead of their address and port, for TCP; " +
      "only with `--manifests`, and in the folders of `--unix-socket-folders`",
    example: "127.0.0.1:8080=unix:/run/app/app.sock",
    grammar: listOf(
      "of endpoints with an absolute path, such as 127.0.0.1:8080=unix:/run/app/app.sock",
      parseSocket,
      ({ path, ...place }: EndpointSocket) => `${formatPlace(place)}=unix:${path}`,
    ),
  }),
  maxConnections: row({
    name: `${OWN_PREFIX}max-connections`,
    default: "the limit of the node",
    meaning: "most open TCP connections and UDP flows of all ports of the Service together",
    example: "500",
    grammar: wholeNumber(1, 1_000_000),
  }),
  maxPerClient: row({
    name: `${OWN_PREFIX}max-connections-per-client`,
    default: "none",
    meaning:
      "most open TCP connections and UDP flows of one client address at all ports of the Service together",
    example: "20",
    grammar: wholeNumber(1, 1_000_000),
  }),
  maxPerSecond: row({
    name: `${OWN_PREFIX}max-new-connections-per-second`,
    default: "none",
    meaning:
      "rate of new TCP connections and UDP flows of all ports of the Service together; as many may come at once",
    example: "100",
    grammar: wholeNumber(1, 1_000_000),
  }),
  idleMs: row({
    name: `${OWN_PREFIX}idle-timeout`,
    default: "none for TCP, `--udp-timeout` for UDP",
    meaning: "a connection or flow ends after this time without data from either side",
    example: "10m",
    grammar: duration({ leastMs: 1000, mostMs: LONGEST_DURATION_MS }),
  }),
  lifetimeMs: row({
    name: `${OWN_PREFIX}max-lifetime`,
    default: "none",
    meaning: "a connection or flow ends after this time in any case",
    example: "12h",
    grammar: duration({ leastMs: 1000, mostMs: LONGEST_DURATION_MS }),
  }),
  healthCheck: row({
    name: `${OWN_PREFIX}health-check`,
    default: "none",
    meaning: "how each endpoint is checked: that it accepts a connection, or answers a `GET`",
    example: "http",
    grammar: oneOf(HEALTH_CHECKS),
  }),
  healthPort: row({
    name: `${OWN_PREFIX}health-check-port`,
    default: "the port of the endpoint",
    meaning: "TCP port that is checked at the address of each endpoint; required for UDP ports",
    example: "8081",
    grammar: wholeNumber(1, 65_535),
  }),
  healthPath: row({
    name: `${OWN_PREFIX}health-check-path`,
    default: "/",
    meaning: "path and query of a check by HTTP",
    example: "/healthz",
    grammar: pattern(
      `has to be a path that begins with /, of at most ${LONGEST_PATH} ASCII characters without blanks`,
      new RegExp(`^/[!-~]{0,${LONGEST_PATH - 1}}$`),
    ),
  }),
  healthHost: row({
    name: `${OWN_PREFIX}health-check-host`,
    default: "address and port of the endpoint",
    meaning: "value of the `Host` header of a check by HTTP; no name is looked up",
    example: "app.example.org",
    grammar: pattern(
      "has to be a host name or an address, with or without a port",
      /^(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/,
    ),
  }),
  healthStatus: row({
    name: `${OWN_PREFIX}health-check-status`,
    default: "200-399",
    meaning: "statuses with which a check by HTTP passes; redirects are not followed",
    example: "200, 204, 300-399",
    grammar: listOf(
      "of statuses from 100 to 599 or ranges of them, such as 200-299, 404",
      parseStatusRange,
      ({ from, to }: StatusRange) => from === to ? `${from}` : `${from}-${to}`,
    ),
  }),
  healthIntervalMs: row({
    name: `${OWN_PREFIX}health-check-interval`,
    default: "10s",
    meaning: "time between the starts of two checks of an endpoint, a tenth more or less",
    example: "5s",
    grammar: duration({ leastMs: 1000, mostMs: 3_600_000 }),
  }),
  healthTimeoutMs: row({
    name: `${OWN_PREFIX}health-check-timeout`,
    default: "2s",
    meaning: "a check that takes longer fails",
    example: "1s",
    grammar: duration({ leastMs: 100, mostMs: 60_000 }),
  }),
  healthRise: row({
    name: `${OWN_PREFIX}health-check-rise`,
    default: "2",
    meaning: "consecutive checks that have to pass before an unhealthy endpoint is healthy",
    example: "3",
    grammar: wholeNumber(1, 100),
  }),
  healthFall: row({
    name: `${OWN_PREFIX}health-check-fall`,
    default: "3",
    meaning: "consecutive checks that have to fail before a healthy endpoint is unhealthy",
    example: "2",
    grammar: wholeNumber(1, 100),
  }),
  ejectAfter: row({
    name: `${OWN_PREFIX}eject-after`,
    default: "never",
    meaning:
      "an endpoint is ejected after so many connections in succession could not be made to it; " +
      "for TCP",
    example: "5",
    grammar: wholeNumber(1, 1000),
  }),
  ejectionMs: row({
    name: `${OWN_PREFIX}ejection-time`,
    default: "30s",
    meaning:
      "time of the first ejection; each further one takes twice as long, up to 10 times this",
    example: "1m",
    grammar: duration({ leastMs: 1000, mostMs: 3_600_000 }),
  }),
  healthThreshold: row({
    name: `${OWN_PREFIX}health-threshold`,
    default: "20",
    meaning:
      "health is ignored while a smaller percentage of the endpoints is healthy, and always while " +
      "none is",
    example: "50",
    grammar: wholeNumber(0, 100),
  }),
};

/** The name of a setting. */
export type EdgeSettingName = keyof typeof EDGE_ANNOTATIONS;

/** The values of the annotations for mode userspace; absent ones are not given, or unusable. */
export type EdgeValues = {
  readonly [Name in EdgeSettingName]?: typeof EDGE_ANNOTATIONS[Name] extends
    AnnotationRow<infer Value> ? Value : never;
};

/**
 * Annotations that mode ipvs parses by the scheduler of the node, by the names of kube-relay and of
 * kube-router.
 */
export const IPVS_ANNOTATIONS = [
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

function row<Value>(value: AnnotationRow<Value>): AnnotationRow<Value> {
  return value;
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

function duration(
  { leastMs, mostMs }: { readonly leastMs: number; readonly mostMs: number },
): Grammar<number> {
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

/** Where an endpoint is; without a port, at any port. */
interface EndpointPlace {
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
