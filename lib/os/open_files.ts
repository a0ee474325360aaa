/**
 * The limits of open files and of source ports, and how many of them each use may take.
 *
 * Counts the files that clients and tenants cause to be opened, and keeps the rest for files, tools
 * and the API server: a process at its limit can start no tool, read no manifest and not even list
 * its own addresses. The number of open files is unknown, because `/proc` is closed to Deno.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import type { CommandOptions, CommandRunner } from "./command_runner.ts";
import type { HttpBounds } from "./http_server.ts";
import { OUT_OF_PORTS_CURE, OUT_OF_SOCKETS_CURE } from "./socket_errors.ts";

/** The HTTP servers. */
export const HTTP_USES = ["healthz", "metrics", "service_health", "control"] as const;

/** The uses of sockets. */
export const SOCKET_USES = ["listener", "connection", "flow", ...HTTP_USES] as const;

type SocketUse = typeof SOCKET_USES[number];

/** What the traffic of Services lacks. */
export type Shortage = "files" | "ports";

/** The remedies. */
export const SHORTAGE_CURES: Readonly<Record<Shortage, string>> = {
  files: OUT_OF_SOCKETS_CURE,
  ports: OUT_OF_PORTS_CURE,
};

/** What a TCP connection, a UDP flow and a health check take. Only a flow has its port for itself. */
const TAKEN = {
  connection: { files: 2, ports: 0 },
  flow: { files: 1, ports: 1 },
  check: { files: 1, ports: 0 },
} as const;

/** The traffic that takes files and ports. */
export type TrafficUse = keyof typeof TAKEN;

/** Used if the limit cannot be read; systemd and most containers have a larger one. */
const ASSUMED_LIMIT = 65_536;
/** Used if the range cannot be read; the kernel has it by default. */
const ASSUMED_PORTS = 28_232;
/** A higher limit has no use: the memory of connections is the limit then. */
const USEFUL_LIMIT = 524_288;
/** Kept for files, tools and the API server: an eighth of the limit, within these. */
const LEAST_RESERVE = 48;
const MOST_RESERVE = 1024;
/** Most and fewest connections of an HTTP server. */
const MOST_HTTP = 256;
const LEAST_HTTP = 4;
/** Most health checks at the same time. */
const MOST_CHECKS = 128;
/** HTTP servers, and room for connections that are accepted only to be refused. */
const HTTP_SHARES = HTTP_USES.length + 2;

/**
 * Divides a limit; all shares together leave the reserve. `listeners` are listening sockets of Services,
 * health check node ports included; `traffic` are sockets of connections, two each, of UDP flows and of
 * health checks of endpoints; `together` is the most of both. `http` are connections of one HTTP server.
 */
export function shareOpenFiles(limit: number): Readonly<
  Record<"listeners" | "listenersOfService" | "traffic" | "together" | "http" | "checks", number>
> {
  const all = Math.min(limit, USEFUL_LIMIT);
  const usable = Math.max(0, all - within(all / 8, LEAST_RESERVE, MOST_RESERVE));
  const http = within(usable / 32, LEAST_HTTP, MOST_HTTP);
  const together = Math.max(0, usable - HTTP_SHARES * http);
  // Neither may take everything from the other.
  const most = Math.floor(together * 3 / 4);
  return {
    listeners: most,
    listenersOfService: within(most / 8, 1, Infinity),
    traffic: most,
    together,
    http,
    checks: within(most / 16, 1, MOST_CHECKS),
  };
}

function within(value: number, least: number, most: number): number {
  return Math.min(Math.max(Math.floor(value), least), most);
}

/** Of the ports that the kernel gives to sockets, UDP flows may use this part; the node keeps the rest. */
export function shareLocalPorts(ports: number): number {
  return Math.floor(ports * 3 / 4);
}

/** The limits, and the counts of all threads of the process. */
export interface SharedOpenFiles {
  readonly limit: number;
  readonly ports: number;
  readonly counts: SharedArrayBuffer;
}

/** Counts what the traffic of Services has taken of something, in all threads. */
class TrafficShare {
  readonly #services = new Map<string, number>();

  /** `counts` are by thread, and `own` is the place of this one. */
  constructor(
    readonly counts: Int32Array,
    readonly own: number,
    readonly most: () => number,
  ) {}

  get taken(): number {
    return this.#sum((count) => count);
  }

  of(service: string): number {
    return this.#services.get(service) ?? 0;
  }

  /**
   * A Service may have twice of what is free. Thus a few Services never exhaust the share of the
   * others, and a single one can use two thirds. Of several threads, each takes a Service to have as
   * much in the others.
   */
  take(service: string, count: number): boolean {
    const own = this.of(service);
    const threads = Math.max(1, this.counts.length - 1);
    // Counted before it is compared, as another thread may do the same at this moment.
    this.exchange(service, count);
    const most = this.most();
    // The other threads may have a part that this one leaves to them, so each has something to exchange.
    const part = Math.floor(most / (4 * this.counts.length));
    const left = most + count -
      this.#sum((each, place) => place === this.own ? each : Math.max(each, part));
    if (left >= count && own * threads + count <= 2 * left) return true;
    this.give(service, count);
    return false;
  }

  /** Counts what takes the place of as much. */
  exchange(service: string, count: number): void {
    Atomics.add(this.counts, this.own, count);
    this.#services.set(service, this.of(service) + count);
  }

  give(service: string, count: number): void {
    Atomics.sub(this.counts, this.own, give(this.#services, service, count));
  }

  #sum(part: (count: number, place: number) => number): number {
    let sum = 0;
    for (let place = 0; place < this.counts.length; place++) {
      sum += part(Atomics.load(this.counts, place), place);
    }
    return sum;
  }
}

/** Counts open files and ports, and refuses those above the shares. */
export class OpenFiles {
  /** Numbers of refusals since the start, by use. */
  readonly refused = new Map<SocketUse, number>();
  readonly #shares: ReturnType<typeof shareOpenFiles>;
  readonly #listeners = new Map<string, number>();
  /** Listening sockets, then the files of each thread's traffic, then its ports. */
  #counts: Int32Array = new Int32Array(3);
  #traffic: Readonly<Record<Shortage, TrafficShare>>;
  readonly #checks = new TrafficShare(new Int32Array(1), 0, () => this.#shares.checks);

  /** `ports` are those that the kernel gives to sockets. */
  constructor(readonly limit = ASSUMED_LIMIT, readonly ports = ASSUMED_PORTS) {
    this.#shares = shareOpenFiles(limit);
    this.#traffic = this.#trafficIn(0);
  }

  /** The same limits in another thread, which has to be the only one with its index. */
  static inThread({ limit, ports, counts }: SharedOpenFiles, index: number): OpenFiles {
    const openFiles = new OpenFiles(limit, ports);
    openFiles.#counts = new Int32Array(counts);
    openFiles.#traffic = openFiles.#trafficIn(index + 1);
    return openFiles;
  }

  /** Has other threads count with this one. Call it once, before there is traffic. */
  share(threads: number): SharedOpenFiles {
    const length = 1 + 2 * (1 + threads);
    const counts = new SharedArrayBuffer(length * Int32Array.BYTES_PER_ELEMENT);
    const listening = this.#listening;
    this.#counts = new Int32Array(counts);
    this.#counts[0] = listening;
    this.#traffic = this.#trafficIn(0);
    return { limit: this.limit, ports: this.ports, counts };
  }

  /** A thread has ended, and its files are closed. */
  forgetThread(index: number): void {
    for (const counts of this.#threadCounts) Atomics.store(counts, index + 1, 0);
  }

  /** Open listening sockets, and sockets of connections and flows. */
  get open(): { readonly listeners: number; readonly traffic: number } {
    return { listeners: this.#listening, traffic: this.#traffic.files.taken };
  }

  /** Takes over the number of listening sockets of a process that counts them. */
  setListening(count: number): void {
    Atomics.store(this.#counts, 0, count);
  }

  get #listening(): number {
    return Atomics.load(this.#counts, 0);
  }

  /** The files of each thread, and its ports. */
  get #threadCounts(): readonly [Int32Array, Int32Array] {
    const middle = (this.#counts.length + 1) / 2;
    return [this.#counts.subarray(1, middle), this.#counts.subarray(middle)];
  }

  #trafficIn(thread: number): Readonly<Record<Shortage, TrafficShare>> {
    const [files, ports] = this.#threadCounts;
    const { traffic, together } = this.#shares;
    const most = shareLocalPorts(this.ports);
    return {
      files: new TrafficShare(files, thread, () => Math.min(traffic, together - this.#listening)),
      ports: new TrafficShare(ports, thread, () => most),
    };
  }

  /** The limits of one HTTP server. */
  get httpBounds(): HttpBounds {
    const { http } = this.#shares;
    return { connections: http, connectionsOfClient: Math.max(2, Math.floor(http / 4)) };
  }

  /** Counts a refusal by code that counts its sockets itself. */
  countRefused(use: SocketUse, count = 1): void {
    this.refused.set(use, (this.refused.get(use) ?? 0) + count);
  }

  /** Returns the refusals since the last call, to be counted by another thread. */
  takeRefused(): ReadonlyMap<SocketUse, number> {
    const refused = new Map(this.refused);
    this.refused.clear();
    return refused;
  }

  /** Whether a Service may have so many more listening sockets. */
  mayListen(service: string, sockets = 1): boolean {
    const { listeners, listenersOfService, together } = this.#shares;
    return (this.#listeners.get(service) ?? 0) + sockets <= listenersOfService &&
      this.#listening + sockets <= listeners &&
      this.#listening + sockets + this.#traffic.files.taken <= together;
  }

  /** Counts listening sockets of a Service, or returns the reason why no more are allowed. */
  takeListener(service: string, sockets = 1): string | undefined {
    const own = this.#listeners.get(service) ?? 0;
    if (!this.mayListen(service, sockets)) {
      this.countRefused("listener");
      return own + sockets > this.#shares.listenersOfService
        ? `this Service has ${own} listening sockets, the most for one Service if ` +
          `${this.limit} files may be open: give it fewer ports, or ${OUT_OF_SOCKETS_CURE}`
        : `all Services have ${this.#listening} listening sockets, and no more are allowed if ` +
          `${this.limit} files may be open: ${OUT_OF_SOCKETS_CURE}`;
    }
    this.#listeners.set(service, own + sockets);
    Atomics.add(this.#counts, 0, sockets);
    return undefined;
  }

  /** Records the end of listening sockets. */
  giveListener(service: string, sockets = 1): void {
    Atomics.sub(this.#counts, 0, give(this.#listeners, service, sockets));
  }

  /** Moves listening sockets to another Service. */
  moveListener(from: string, to: string, sockets = 1): void {
    const moved = give(this.#listeners, from, sockets);
    this.#listeners.set(to, (this.#listeners.get(to) ?? 0) + moved);
  }

  /** Counts a connection, flow or check, or returns what is lacking for it. */
  takeTraffic(service: string, use: TrafficUse): Shortage | undefined {
    const { files, ports } = TAKEN[use];
    // First: what ends for a port leaves a file, too, but a connection that ends for a file has no port.
    if (ports > 0 && !this.#traffic.ports.take(service, ports)) return "ports";
    if (this.#traffic.files.take(service, files)) return undefined;
    this.#traffic.ports.give(service, ports);
    return "files";
  }

  /** Counts a connection or flow in place of others that took as much. */
  exchangeTraffic(service: string, use: TrafficUse): void {
    const { files, ports } = TAKEN[use];
    this.#traffic.files.exchange(service, files);
    this.#traffic.ports.exchange(service, ports);
  }

  /** Records the end of a connection, flow or check. */
  giveTraffic(service: string, use: TrafficUse): void {
    const { files, ports } = TAKEN[use];
    this.#traffic.files.give(service, files);
    this.#traffic.ports.give(service, ports);
  }

  /** What the traffic of a Service takes in this thread. */
  trafficOf(service: string, of: Shortage): number {
    return this.#traffic[of].of(service);
  }

  /**
   * Counts the socket of a health check; returns whether it is allowed now. Namespaces share the checks
   * in progress as Services share traffic.
   */
  takeCheck(namespace: string): boolean {
    if (!this.#checks.take(namespace, 1)) return false;
    if (this.takeTraffic(namespace, "check") === undefined) return true;
    this.#checks.give(namespace, 1);
    return false;
  }

  /** Records the end of a health check. */
  giveCheck(namespace: string): void {
    this.#checks.give(namespace, 1);
    this.giveTraffic(namespace, "check");
  }
}

/**
 * Reads the limits of this process, which its children inherit, and of its network. Deno raises the
 * soft limit to the hard one when it starts. Never rejects.
 */
export async function readOpenFiles(
  { commands, logger }: { readonly commands: CommandRunner; readonly logger: Logger },
): Promise<OpenFiles> {
  const ports = readLocalPorts(commands);
  try {
    const { stdout } = await commands.run("cat", ["/proc/self/limits"]);
    const [, limit] = /^Max open files\s+(\d+|unlimited)\s/m.exec(stdout) ?? [];
    if (limit === undefined) throw new Error(`no line 'Max open files' in '${stdout}'`);
    return new OpenFiles(limit === "unlimited" ? USEFUL_LIMIT : Number(limit), await ports);
  } catch (error) {
    logger.warn("Cannot read the limit of open files; using a default", {
      assumed: ASSUMED_LIMIT,
      reason: messageOf(error),
    });
    return new OpenFiles(ASSUMED_LIMIT, await ports);
  }
}

/**
 * Reads how many ports the kernel gives to sockets of this network namespace; `undefined` if it cannot
 * be read. Never rejects.
 */
export async function readLocalPorts(
  commands: CommandRunner,
  options: CommandOptions = {},
): Promise<number | undefined> {
  const files = ["port_range", "reserved_ports"].map((name) =>
    `/proc/sys/net/ipv4/ip_local_${name}`
  );
  const { stdout } = await commands.run("cat", files, options).catch(() => ({ stdout: "" }));
  const [range = "", reserved = ""] = stdout.split("\n");
  const [, first, last] = /^(\d+)\s+(\d+)$/.exec(range.trim()) ?? [];
  if (first === undefined) return undefined;
  let ports = Number(last) - Number(first) + 1;
  // Such as "8080,30000-32767".
  for (const [, from, to = from] of reserved.matchAll(/(\d+)(?:-(\d+))?/g)) {
    const most = Math.min(Number(to), Number(last));
    ports -= Math.max(0, most - Math.max(Number(from), Number(first)) + 1);
  }
  return ports;
}

/** Returns how much was returned. */
function give(counts: Map<string, number>, key: string, count: number): number {
  const before = counts.get(key) ?? 0;
  const given = Math.min(before, count);
  if (before > given) counts.set(key, before - given);
  else counts.delete(key);
  return given;
}
