/**
 * The limit of open files, and how many of them each use may take.
 *
 * Counts the files that clients and tenants cause to be opened, and keeps the rest for files, tools
 * and the API server: a process at its limit can start no tool, read no manifest and not even list
 * its own addresses. The number of open files is unknown, because `/proc` is closed to Deno.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import type { CommandRunner } from "./command_runner.ts";
import type { HttpBounds } from "./http_listener.ts";
import { OUT_OF_SOCKETS_CURE } from "./socket_errors.ts";

/** The HTTP servers. */
export const HTTP_USES = ["healthz", "metrics", "service_health", "control"] as const;

/** The uses of sockets. */
export const SOCKET_USES = ["listener", "connection", "flow", ...HTTP_USES] as const;

type SocketUse = typeof SOCKET_USES[number];

/** The number of files that each use may take. */
interface OpenFileShares {
  /** Listening sockets of Services, health check node ports included. */
  readonly listeners: number;
  readonly listenersOfService: number;
  /** Sockets of connections and flows: two of a TCP connection, one of a UDP flow. */
  readonly traffic: number;
  /** Listeners and traffic together. */
  readonly together: number;
  /** Connections of one HTTP server. */
  readonly http: number;
  /** Health checks of endpoints in progress; they are traffic, too. */
  readonly checks: number;
}

/** Used if the limit cannot be read; systemd and most containers have a larger one. */
const ASSUMED_LIMIT = 65_536;
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

/** Divides a limit. All shares together leave the reserve. */
export function shareOpenFiles(limit: number): OpenFileShares {
  const all = Math.min(limit, USEFUL_LIMIT);
  const reserve = Math.min(Math.max(Math.floor(all / 8), LEAST_RESERVE), MOST_RESERVE);
  const usable = Math.max(0, all - reserve);
  const http = Math.min(Math.max(Math.floor(usable / 32), LEAST_HTTP), MOST_HTTP);
  const together = Math.max(0, usable - HTTP_SHARES * http);
  // Neither may take everything from the other.
  const most = Math.floor(together * 3 / 4);
  return {
    listeners: most,
    listenersOfService: Math.max(1, Math.floor(most / 8)),
    traffic: most,
    together,
    http,
    checks: Math.min(Math.max(Math.floor(most / 16), 1), MOST_CHECKS),
  };
}

/** The counts of all threads of the process. */
export interface SharedOpenFiles {
  readonly limit: number;
  readonly counts: SharedArrayBuffer;
}

/** Counts open files, and refuses those above the shares. */
export class OpenFiles {
  readonly limit: number;
  readonly #shares: OpenFileShares;
  readonly #listeners = new Map<string, number>();
  readonly #traffic = new Map<string, number>();
  readonly #refused = new Map<SocketUse, number>();
  /** Listening sockets, then the sockets of connections and flows of each thread. */
  #counts: Int32Array = new Int32Array(2);
  /** The place of this thread in the counts. */
  #own = 1;
  #checking = 0;

  constructor(limit = ASSUMED_LIMIT) {
    this.limit = limit;
    this.#shares = shareOpenFiles(limit);
  }

  /** The same limits in another thread, which has to be the only one with its index. */
  static inThread({ limit, counts }: SharedOpenFiles, index: number): OpenFiles {
    const openFiles = new OpenFiles(limit);
    openFiles.#counts = new Int32Array(counts);
    openFiles.#own = index + 2;
    return openFiles;
  }

  /** Has other threads count with this one. Call it once. */
  share(threads: number): SharedOpenFiles {
    const counts = new SharedArrayBuffer((2 + threads) * Int32Array.BYTES_PER_ELEMENT);
    const shared = new Int32Array(counts);
    shared.set(this.#counts);
    this.#counts = shared;
    return { limit: this.limit, counts };
  }

  /** A thread has ended, and its files are closed. */
  forgetThread(index: number): void {
    Atomics.store(this.#counts, index + 2, 0);
  }

  /** Open listening sockets, and sockets of connections and flows. */
  get open(): { readonly listeners: number; readonly traffic: number } {
    return { listeners: this.#listening, traffic: this.#carrying };
  }

  get #listening(): number {
    return Atomics.load(this.#counts, 0);
  }

  get #carrying(): number {
    let sum = 0;
    for (let place = 1; place < this.#counts.length; place++) {
      sum += Atomics.load(this.#counts, place);
    }
    return sum;
  }

  /** Numbers of refusals since the start, by use. */
  get refused(): ReadonlyMap<SocketUse, number> {
    return this.#refused;
  }

  /** The limits of one HTTP server. */
  get httpBounds(): HttpBounds {
    const { http } = this.#shares;
    return { connections: http, connectionsOfClient: Math.max(2, Math.floor(http / 4)) };
  }

  /** Counts a refusal by code that counts its sockets itself. */
  countRefused(use: SocketUse, count = 1): void {
    this.#refused.set(use, (this.#refused.get(use) ?? 0) + count);
  }

  /** Returns the refusals since the last call, to be counted by another thread. */
  takeRefused(): ReadonlyMap<SocketUse, number> {
    const refused = new Map(this.#refused);
    this.#refused.clear();
    return refused;
  }

  /** Whether a Service may have so many more listening sockets. */
  mayListen(service: string, sockets = 1): boolean {
    const { listeners, listenersOfService, together } = this.#shares;
    return (this.#listeners.get(service) ?? 0) + sockets <= listenersOfService &&
      this.#listening + sockets <= listeners &&
      this.#listening + sockets + this.#carrying <= together;
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

  /**
   * Counts the sockets of a connection or flow; returns whether they are allowed. A Service may
   * have twice the number of free sockets. Thus a few Services never exhaust the sockets of the
   * others, and a single one can use two thirds. `isExchange`: a larger Service has just released
   * the same number. Of several threads, each takes a Service to have as many sockets in the others.
   */
  takeTraffic(
    service: string,
    sockets: 1 | 2,
    { isExchange = false }: { readonly isExchange?: boolean } = {},
  ): boolean {
    const { traffic, together } = this.#shares;
    const own = this.#traffic.get(service) ?? 0;
    const threads = Math.max(1, this.#counts.length - 2);
    // Counted before it is compared, as another thread may do the same at this moment.
    Atomics.add(this.#counts, this.#own, sockets);
    const left = Math.min(traffic, together - this.#listening) - this.#carrying + sockets;
    if (left < sockets || (!isExchange && own * threads + sockets > 2 * left)) {
      Atomics.sub(this.#counts, this.#own, sockets);
      return false;
    }
    this.#traffic.set(service, own + sockets);
    return true;
  }

  /** Records the end of a connection or flow. */
  giveTraffic(service: string, sockets: 1 | 2): void {
    Atomics.sub(this.#counts, this.#own, give(this.#traffic, service, sockets));
  }

  /** Counts the socket of a health check; returns whether it is allowed now. */
  takeCheck(service: string): boolean {
    if (this.#checking >= this.#shares.checks || !this.takeTraffic(service, 1)) return false;
    this.#checking++;
    return true;
  }

  /** Records the end of a health check. */
  giveCheck(service: string): void {
    this.#checking--;
    this.giveTraffic(service, 1);
  }
}

/**
 * Reads the limit of this process, which its children inherit. Deno raises the soft limit to the
 * hard one when it starts. Never rejects.
 */
export async function readOpenFiles(
  { commands, logger }: { readonly commands: CommandRunner; readonly logger: Logger },
): Promise<OpenFiles> {
  try {
    const { stdout } = await commands.run("cat", ["/proc/self/limits"]);
    const [, limit] = /^Max open files\s+(\d+|unlimited)\s/m.exec(stdout) ?? [];
    if (limit === undefined) throw new Error(`no line 'Max open files' in '${stdout}'`);
    return new OpenFiles(limit === "unlimited" ? USEFUL_LIMIT : Number(limit));
  } catch (error) {
    logger.warn("Cannot read the limit of open files; using a default", {
      assumed: ASSUMED_LIMIT,
      reason: messageOf(error),
    });
    return new OpenFiles();
  }
}

/** Returns how much was returned. */
function give(counts: Map<string, number>, key: string, count: number): number {
  const before = counts.get(key) ?? 0;
  const given = Math.min(before, count);
  if (before > given) counts.set(key, before - given);
  else counts.delete(key);
  return given;
}
