/**
 * Follows one packet through the rules of the kernel by `nft monitor trace`.
 *
 * A table of its own marks the packet. The kernel removes it when the process that created it ends
 * (`flags owner`, Linux 5.12): `nft -i`, which ends with its input, which ends with kube-relay. So
 * nothing remains after any kill. The mark is the kernel's packet trace flag: rules of iptables-nft
 * report a marked packet too.
 *
 * @module
 */
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network, UdpSocket } from "../../../lib/os/network.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import {
  type PacketWatch,
  type PathOptions,
  type TracedPath,
  type TraceEnding,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { NftSession } from "../nft/held_nft.ts";
import { nftFamily } from "../nft/nft_objects.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";
import {
  type FollowedStep,
  markTableName,
  PacketFollower,
  parseNftTraceLine,
} from "./nft_trace_events.ts";

/** The dependencies of packet watches, and a name that distinguishes concurrent traces. */
export interface TraceEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Network;
  /** The process id and a number: containers on one network may have the same process ids. */
  readonly id: string;
}

interface NftWatchOptions {
  readonly describe: (step: TraceStep, service: string | undefined) => string | undefined;
  /** Looks up the text of rules. */
  readonly lookUp: (steps: readonly FollowedStep[]) => Promise<readonly TraceStep[]>;
  readonly signal: AbortSignal;
}

/** The maximum duration of a watch, after which a hanging process is ended. */
const LONGEST_WATCH_MS = 3_600_000;
/** Maximum time until the tool sees marked packets. */
const READY_MS = 10_000;
/** Mostly it watches within a few milliseconds. */
const FIRST_BEACON_PERIOD_MS = 5;
const BEACON_PERIOD_MS = 50;
/** After this time without an event, the packet has left this machine or was dropped. */
const QUIET_MS = 200;
/**
 * Usually everything has arrived by then, and the rest of the time is enough to look up the rules.
 */
const LULL_MS = 30;
/** A packet without an event in this time did not pass the rules. */
const SEEN_MS = 1500;
const MOST_QUIET_CHECKS = 50;

/** Throws a TraceError. */
export async function startNftWatch(
  edges: TraceEdges,
  packet: WatchedPacket,
  options: NftWatchOptions,
): Promise<PacketWatch> {
  let watch: NftWatch | undefined;
  try {
    watch = new NftWatch(edges, packet, options);
    await watch.start();
    return watch;
  } catch (error) {
    await watch?.[Symbol.asyncDispose]();
    throw asTraceError(error);
  }
}

class NftWatch implements PacketWatch {
  readonly way = "nft monitor trace";
  readonly seen: Promise<void>;
  readonly #edges: TraceEdges;
  readonly #packet: WatchedPacket;
  readonly #options: NftWatchOptions;
  readonly #stop = new AbortController();
  readonly #marked = Promise.withResolvers<void>();
  readonly #broken = Promise.withResolvers<never>();
  readonly #beacon: UdpSocket;
  readonly #follower: PacketFollower;
  readonly #table: string;
  readonly #nft: NftSession;
  #beaconsSent = 0;
  #beaconsReported = 0;
  /** Of the next beacon. */
  #reported = Promise.withResolvers<void>();
  /**
   * nft reads all rules of the machine before it watches, only to print their texts: at ten thousand
   * Services this takes one to three seconds and 150 MB. The last command determines what is read
   * (`nft_cache_evaluate()`; checked with 1.0.6), so a listing of a table with two rules follows the
   * monitor, which never ends. Rules are then printed as numbers and looked up afterwards. An nft
   * without this optimization reads everything.
   */
  readonly #command: string;
  #monitoring: Promise<unknown> = Promise.resolve();
  #lastEventAt = 0;
  /** The last lookup, and its number of steps. */
  #lastLookUp:
    | { readonly of: number; readonly steps: Promise<readonly TraceStep[]> }
    | undefined;

  constructor(edges: TraceEdges, packet: WatchedPacket, options: NftWatchOptions) {
    this.#edges = edges;
    this.#packet = packet;
    this.#options = options;
    this.#beacon = edges.network.listenUdp({ hostname: BEACON_ADDRESS[packet.family], port: 0 });
    this.#table = markTableName(edges.id);
    this.#command = `monitor trace; list table ${nftFamily(packet.family)} ${this.#table}`;
    this.#nft = new NftSession(edges);
    this.#follower = new PacketFollower({
      table: this.#table,
      beaconPort: this.#beacon.addr.port,
      onBeacon: () => {
        this.#beaconsReported++;
        this.#reported.resolve();
        this.#reported = Promise.withResolvers();
      },
      onSeen: () => {
        this.#lastEventAt = edges.clock.now();
        this.#marked.resolve();
      },
    });
    this.#broken.promise.catch(() => {});
    this.seen = Promise.race([this.#marked.promise, this.#broken.promise]);
    this.seen.catch(() => {});
  }

  async start(): Promise<void> {
    const beaconPort = this.#beacon.addr.port;
    const { table, rule } = markTableText(this.#packet, { table: this.#table, beaconPort });
    await this.#write(table, table + rule);
    this.#nft.ended.then((stderr) =>
      this.#broken.reject(
        new TraceError(`The table that marks the packet is gone: ${firstLine(stderr)}`),
      ), this.#broken.reject);
    this.#monitoring = this.#monitor().catch(this.#broken.reject);
    if (!await this.#untilReported()) {
      throw new TraceError(
        `Cannot trace: 'nft -a ${this.#command}' reported no marked packet within ${
          READY_MS / 1000
        } s; ` +
          "is the interface lo up?",
      );
    }
    await this.#write(rule, table + rule);
  }

  /** `whole`: for a process of its own, which gives the reason if the text is refused. */
  async #write(text: string, whole: string): Promise<void> {
    if (await this.#nft.write(text.trimEnd(), READY_MS) === "applied") return;
    const { commands } = this.#edges;
    const { signal } = this.#options;
    const trial = await commands.run("nft", ["-c", "-f", "-"], { stdin: whole, signal });
    throw trial.code === 0
      ? new TraceError("Cannot trace: 'nft -i' did not write the table that marks the packet")
      : refusal(trial.stderr);
  }

  async path({ service, isUnsent = false }: PathOptions): Promise<TracedPath> {
    if (!isUnsent) {
      await this.#untilSeen();
      await this.#untilQuiet(LULL_MS);
      this.#namedSteps().catch(() => {});
      await this.#untilQuiet(QUIET_MS);
    }
    const { header } = this.#follower;
    const steps = (await this.#namedSteps()).map((step): TraceStep => {
      const meaning = this.#options.describe(step, service);
      return meaning === undefined ? step : { ...step, meaning };
    });
    const ending = header === undefined ? "not seen" : endingOf(steps);
    return { steps, ending, notes: [], ...(header && { header }) };
  }

  /** The path is read again when the sender is done; earlier lookups are reused. */
  #namedSteps(): Promise<readonly TraceStep[]> {
    const { steps } = this.#follower;
    if (this.#lastLookUp?.of !== steps.length) {
      this.#lastLookUp = { of: steps.length, steps: this.#options.lookUp([...steps]) };
    }
    return this.#lastLookUp.steps;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#nft.end();
    await this.#nft.ended.catch(() => {});
    await this.#monitoring;
    this.#beacon.close();
  }

  /** Runs until the watch is stopped; rejects when the tool ends. */
  async #monitor(): Promise<never> {
    const stderr = await this.#runMonitor();
    throw new TraceError(
      `Cannot trace: 'nft -a ${this.#command}' ended: ${stderr.trim() || "no reason"}`,
    );
  }

  /** Runs the tool and returns its error messages. */
  async #runMonitor(): Promise<string> {
    // A tool notices a closed pipe only when it prints, which may never happen.
    const args = ["--pdeathsig", "KILL", "--", "nft", "-a", this.#command];
    const { stderr } = await this.#edges.commands.run("setpriv", args, {
      signal: this.#stop.signal,
      timeoutMs: LONGEST_WATCH_MS,
      onLine: (printed) => {
        const event = parseNftTraceLine(printed);
        if (event && this.#follower.take(event)) this.#lastEventAt = this.#edges.clock.now();
      },
    });
    return stderr;
  }

  /**
   * Sends beacons until one of them is reported: earlier events are read then, too, however late the
   * tool printed them. Returns whether that came true in time.
   */
  async #untilReported(): Promise<boolean> {
    const { clock } = this.#edges;
    const deadline = clock.now() + READY_MS;
    // So many reported ones may be of before.
    const sentBefore = this.#beaconsSent;
    const lost = sentBefore - this.#beaconsReported;
    let period = FIRST_BEACON_PERIOD_MS;
    while (this.#beaconsReported <= sentBefore) {
      if (clock.now() >= deadline) return false;
      const isFirst = this.#beaconsSent === sentBefore;
      await this.#sendBeacons(isFirst ? 1 + lost : 1);
      await this.#untilBeacon(period);
      period = Math.min(2 * period, BEACON_PERIOD_MS);
    }
    return true;
  }

  async #sendBeacons(count: number): Promise<void> {
    const hostname = parseIpAddress(BEACON_ADDRESS[this.#packet.family]);
    const target = { hostname, port: this.#beacon.addr.port };
    this.#beaconsSent += count;
    for (let i = 0; i < count; i++) {
      await this.#beacon.send(new Uint8Array(1), target).catch(() => {});
    }
  }

  async #untilBeacon(periodMs: number): Promise<void> {
    const enough = new AbortController();
    const signal = AbortSignal.any([this.#options.signal, this.#stop.signal, enough.signal]);
    const pause = this.#edges.clock.sleep(periodMs, signal);
    try {
      await Promise.race([this.#reported.promise, this.#broken.promise, pause]);
    } finally {
      enough.abort();
      await pause.catch(() => {});
    }
  }

  /** Events arrive a moment after the packet was sent. */
  async #untilSeen(): Promise<void> {
    await this.#untilReported();
    const late = new AbortController();
    const pause = this.#edges.clock.sleep(SEEN_MS, late.signal).catch(() => {});
    await Promise.race([this.seen, pause]);
    late.abort();
    await pause;
  }

  async #untilQuiet(quietMs: number): Promise<void> {
    const { clock } = this.#edges;
    for (let check = 0; check < MOST_QUIET_CHECKS; check++) {
      const last = this.#lastEventAt;
      const left = last + quietMs - clock.now();
      if (left > 0) {
        await clock.sleep(left, this.#options.signal);
        continue;
      }
      await this.#untilReported();
      if (this.#lastEventAt === last) return;
    }
  }
}

/**
 * Returns the outcome of a packet by its last step. The kernel reports `reject` as a drop: only the
 * rule distinguishes them.
 */
export function endingOf(steps: readonly TraceStep[]): TraceEnding {
  const last = steps.at(-1);
  if (last === undefined || !/^(drop|reject)\b/.test(last.verdict)) return "went on";
  return /\breject\b|-j REJECT\b/.test(`${last.verdict} ${last.rule ?? ""}`)
    ? "rejected"
    : "dropped";
}

/** Loopback address from and to which the packets go that show whether a tool watches already. */
const BEACON_ADDRESS: Readonly<Record<IpFamily, string>> = {
  IPv4: "127.0.0.1",
  IPv6: "::1",
};

/** Before all other rules: the table raw is at -300. */
const FIRST = -350;
/**
 * After conntrack at -200, and before every rule of a Service proxy. If flows can only be
 * identified by conntrack, the marked packet must be the first of one.
 */
const KNOWS_FLOWS = -175;

/** The two commands that make it, each on one line, as `nft -i` reads them. */
interface MarkTableText {
  /** The table with the rule that marks beacons. */
  readonly table: string;
  /** The rule that marks the packet. */
  readonly rule: string;
}

/**
 * Renders the table. Only the first matching packet is marked, since a retransmitted SYN would be
 * reported twice. So the rule must only be added once the monitor runs: in a busy Service the first
 * packet comes at once.
 */
export function markTableText(
  packet: WatchedPacket,
  { table, beaconPort }: { readonly table: string; readonly beaconPort: number },
): MarkTableText {
  const { family, comesFrom } = packet;
  const ip = nftFamily(family);
  const beacon = `${ip} daddr ${BEACON_ADDRESS[family]} udp sport ${beaconPort} ` +
    `udp dport ${beaconPort} meta nftrace set 1`;
  const priority = knowsFlows(packet) ? KNOWS_FLOWS : FIRST;
  const chain = (hook: string, rule?: string) =>
    `chain ${hook} { type filter hook ${hook} priority ${priority}; ${rule ? `${rule}; ` : ""}}`;
  // A chain without a rule shows where the packet comes in again.
  const chains = [chain("prerouting"), chain("output", beacon)];
  const hook = comesFrom === "elsewhere" ? "prerouting" : "output";
  return {
    table: `add table ${ip} ${table} { flags owner; ${chains.join("; ")}; }\n`,
    rule: `add rule ${ip} ${table} ${hook} ${markRule(packet)}\n`,
  };
}

function markRule(packet: WatchedPacket): string {
  const { family, from, to, port, protocol, sourcePort } = packet;
  const ip = nftFamily(family);
  const th = protocol.toLowerCase();
  return [
    ...(from === undefined ? [] : [`${ip} saddr ${from}`]),
    `${ip} daddr ${to}`,
    ...(sourcePort === undefined ? [] : [`${th} sport ${sourcePort}`]),
    `${th} dport ${port}`,
    ...(protocol === "TCP" ? ["tcp flags & (syn | ack) == syn"] : []),
    ...(knowsFlows(packet) ? ["ct state new"] : []),
    "limit rate 1/day burst 1 packets meta nftrace set 1",
  ].join(" ");
}

function knowsFlows({ comesFrom, protocol }: WatchedPacket): boolean {
  return comesFrom === "elsewhere" && protocol !== "TCP";
}

function refusal(words: string): TraceError {
  if (saysNotPermitted(words)) {
    return new TraceError(
      "Cannot mark a packet for tracing: this user may not write rules; run it as root or with " +
        "CAP_NET_ADMIN",
    );
  }
  const cure = /owner|syntax error/.test(words)
    ? "; it needs nft 0.9.9 and Linux 5.12 or later, for a table that is removed with its owner"
    : "";
  return new TraceError(`Cannot mark a packet for tracing: nft says: ${firstLine(words)}${cure}`);
}

/** Converts errors of the command runner, and of sockets, into trace errors, for every tool. */
export function asTraceError(error: unknown): unknown {
  if (systemErrorOf(error) !== undefined) {
    return new TraceError(`Cannot trace: ${messageOf(error)}`, { cause: error });
  }
  if (!(error instanceof CommandError) || error.kind === "aborted") return error;
  return new TraceError(`Cannot trace: ${error.message}`, { cause: error });
}
