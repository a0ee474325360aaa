/**
 * Reads `/proc/net/ip_vs`: much cheaper to have than what `ipvsadm` prints, which asks the kernel once
 * for each server, and the only text with the numbers of connections for all of them. Pure.
 *
 * ```
 * Prot LocalAddress:Port Scheduler Flags
 *   -> RemoteAddress:Port Forward Weight ActiveConn InActConn
 * TCP  0A600001:01BB rr persistent 1080000 FFFFFFFF
 *   -> 0A010102:192B      Masq    1      3          0
 * TCP  [fd00:0096:0000:0000:0000:0000:0000:0001]:01BB rr
 * FWM  00000007 wlc
 * ```
 *
 * Flags of the scheduler are not in it, and times are in ticks of the kernel.
 *
 * @module
 */
import { tryParseProtocol } from "../../lib/net/port.ts";
import { addressOf, tryParseServerLine } from "../netfilter/foreign/virtual_servers.ts";
import {
  type Forwarding,
  markKey,
  type RealServer,
  realServerKey,
  type ServerKey,
  serverKey,
} from "./virtual_server.ts";

/** A real server with its connections. */
export interface SeenRealServer extends RealServer {
  /** Established connections. */
  readonly active: number;
  /** All others that are remembered: half open, or closed a moment ago. */
  readonly inactive: number;
}

/** A virtual server as read from the kernel. */
export interface SeenServer {
  readonly key: ServerKey;
  readonly scheduler: string;
  /** In ticks, of which a second has 100, 250, 300 or 1,000; `undefined` = not persistent. */
  readonly persistenceTicks?: number;
  readonly isOnePacket: boolean;
  readonly reals: readonly SeenRealServer[];
}

const MARK = /^FWM\s+([0-9A-F]{8})\s+([\w-]+)(.*)$/;
const REAL =
  /^\s+->\s+(?:([0-9A-F]{8})|\[([0-9a-fA-F:]+)\]):([0-9A-F]{4})\s+(\w+)\s+(\d+)\s+(\d+)\s+(\d+)/;
/** The kernel's other values, `Local` and `Bypass`, are never written by this mode. */
const FORWARDING: ReadonlyMap<string, Forwarding> = new Map([
  ["Masq", "masquerade"],
  ["Tunnel", "tunnel"],
]);
/** Whole ticks in a second, as kernels are built. */
const TICKS: readonly number[] = [100, 250, 300, 1_000];

/** Reads the file in short steps. Lines that make no sense are skipped. */
export function* readProcIpVs(text: string): Generator<void, SeenServer[]> {
  const servers: SeenServer[] = [];
  let reals: SeenRealServer[] = [];
  for (const line of text.split("\n")) {
    yield;
    const real = tryParseReal(line);
    if (real !== undefined) {
      reals.push(real);
      continue;
    }
    // Real servers after an unreadable virtual server must not be added to the previous one.
    reals = [];
    const server = tryParseSeenServer(line);
    if (server !== undefined) servers.push({ ...server, reals });
  }
  return servers;
}

/** Scheduler and persistence as the file has them, in the order of `ipvsadm`. */
export function seenSetup({ scheduler, isOnePacket, persistenceTicks }: SeenServer): string {
  const persistence = persistenceTicks === undefined ? "" : ` -p ${persistenceTicks} ticks`;
  return `-s ${scheduler}${isOnePacket ? " -o" : ""}${persistence}`;
}

/** Whether a setup as it was seen can be this one: the length of a tick is unknown, and so are flags. */
export function isSameSetup(seen: string, wanted: string): boolean {
  const [, setup, ticks] = /^(.*?)(?: -p (\d+) ticks)?$/.exec(seen) ?? [];
  const [, wantedSetup, seconds] = /^(-s \S+)(?: -p (\d+))?/.exec(wanted) ?? [];
  if (setup !== wantedSetup || ticks === undefined || seconds === undefined) {
    return setup === wantedSetup && ticks === seconds;
  }
  return TICKS.includes(Number(ticks) / Number(seconds));
}

function tryParseSeenServer(line: string): Omit<SeenServer, "reals"> | undefined {
  const [, mark, markScheduler = "", markRest = ""] = MARK.exec(line) ?? [];
  if (mark !== undefined) {
    // IPv4 and IPv6 look the same here; this mode uses no firewall marks.
    return { key: markKey(parseInt(mark, 16), false), ...setupOf(markScheduler, markRest) };
  }
  const { server, setup = "" } = tryParseServerLine(line) ?? {};
  const protocol = tryParseProtocol(server?.protocol.toUpperCase() ?? "");
  if (server === undefined || protocol === undefined) return undefined;
  const [, scheduler, rest = ""] = /^([\w-]+)(.*)$/.exec(setup) ?? [];
  if (scheduler === undefined) return undefined;
  return { key: serverKey({ ...server, protocol }), ...setupOf(scheduler, rest) };
}

function setupOf(
  scheduler: string,
  rest: string,
): Pick<SeenServer, "isOnePacket" | "persistenceTicks" | "scheduler"> {
  const [, ticks] = / persistent (\d+)/.exec(rest) ?? [];
  return {
    scheduler,
    isOnePacket: / ops\b/.test(rest),
    ...(ticks !== undefined && { persistenceTicks: Number(ticks) }),
  };
}

function tryParseReal(line: string): SeenRealServer | undefined {
  const [, v4, v6, port, forward = "", weight, active, inactive] = REAL.exec(line) ?? [];
  const address = addressOf(v4, v6);
  if (address === undefined || port === undefined) return undefined;
  return {
    key: realServerKey(address, parseInt(port, 16)),
    forwarding: FORWARDING.get(forward) ?? "route",
    weight: Number(weight),
    active: Number(active),
    inactive: Number(inactive),
  };
}
