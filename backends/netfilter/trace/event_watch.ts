import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { CommandResult } from "../../../lib/os/command_runner.ts";
import type { UdpSocket } from "../../../lib/os/network.ts";
import {
  type PacketWatch,
  type PathOptions,
  type TracedPath,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { asTraceError, type HeldTable, holdTable, LONGEST_WATCH_MS } from "./held_table.ts";
import { BEACON_ADDRESS, isMarking, markTableName, markTableText } from "./mark_table.ts";
import { nftFamily } from "../nft/nft_objects.ts";
import { type FollowedStep, PacketFollower } from "./packet_follower.ts";
import { endingOf, type TraceEdges, type TraceEvent } from "./trace_event.ts";

/** A tool that prints the events of marked packets. */
export interface TraceMonitor {
  /** The method, as the end of "seen by …". */
  readonly way: string;
  /** Command lines; if one ends before its first event, the next is tried. */
  readonly lines: readonly (readonly string[])[];
  /** The events of one line that it prints. */
  readonly parse: (line: string) => readonly TraceEvent[];
  /** Post-processes the steps. @default {as they are} */
  readonly finish?: (steps: readonly FollowedStep[]) => Promise<readonly TraceStep[]>;
}

interface EventWatchOptions {
  readonly monitor: TraceMonitor;
  readonly describe: (step: TraceStep, service: string | undefined) => string | undefined;
  readonly signal: AbortSignal;
  /** Maximum time until the tool sees marked packets. @default {10000} */
  readonly readyMs?: number;
}

const READY_MS = 10_000;
/** Mostly it watches within a few milliseconds. */
const FIRST_BEACON_PERIOD_MS = 5;
const BEACON_PERIOD_MS = 50;
const TABLE_PERIOD_MS = 5;
/** After this time without an event, the packet has left this machine or was dropped. */
const QUIET_MS = 200;
/**
 * Usually everything has arrived by then, and the rest of the time is enough to look up the rules.
 */
const LULL_MS = 30;
/** A packet without an event in this time did not pass the rules. */
const SEEN_MS = 1500;
const MOST_QUIET_CHECKS = 50;

/** The tool never saw the marked packet; another method may work. */
export class SilentMonitorError extends TraceError {
  override name = "SilentMonitorError";
}

/** Throws a TraceError, or a {@linkcode SilentMonitorError} if the tool works but reports no event. */
export async function startEventWatch(
  edges: TraceEdges,
  packet: WatchedPacket,
  options: EventWatchOptions,
): Promise<PacketWatch> {
  const watch = new EventWatch(edges, packet, options);
  try {
    await watch.start();
    return watch;
  } catch (error) {
    await watch[Symbol.asyncDispose]();
    throw asTraceError(error);
  }
}

class EventWatch implements PacketWatch {
  readonly way: string;
  readonly seen: Promise<void>;
  readonly #edges: TraceEdges;
  readonly #packet: WatchedPacket;
  readonly #options: EventWatchOptions;
  readonly #stop = new AbortController();
  readonly #marked = Promise.withResolvers<void>();
  readonly #broken = Promise.withResolvers<never>();
  readonly #beacon: UdpSocket;
  readonly #follower: PacketFollower;
  readonly #table: string;
  #held: HeldTable | undefined;
  #beaconsSent = 0;
  #beaconsReported = 0;
  /** Of the next beacon. */
  #reported = Promise.withResolvers<void>();
  /** The monitor's command line. */
  #line = "";
  #monitoring: Promise<unknown> = Promise.resolve();
  #lastEventAt = 0;
  /** The last lookup, and its number of steps. */
  #lastLookUp:
    | { readonly of: number; readonly steps: Promise<readonly FollowedStep[]> }
    | undefined;

  constructor(edges: TraceEdges, packet: WatchedPacket, options: EventWatchOptions) {
    this.#edges = edges;
    this.#packet = packet;
    this.#options = options;
    this.way = options.monitor.way;
    this.#beacon = edges.network.listenUdp({ hostname: BEACON_ADDRESS[packet.family], port: 0 });
    this.#table = markTableName(edges.id);
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
    const { signal } = this.#options;
    const beaconPort = this.#beacon.addr.port;
    const text = markTableText(this.#packet, { table: this.#table, beaconPort });
    this.#held = await holdTable(this.#edges, { ...text, signal });
    this.#held.lost.catch(this.#broken.reject);
    await this.#untilTable(({ code }) => code === 0, "nft did not make the table of the trace");
    this.#monitoring = this.#monitor().catch(this.#broken.reject);
    await this.#untilReady();
    this.#held.addRule();
    await this.#untilTable(
      ({ stdout }) => isMarking(stdout),
      "nft did not write the rule that marks the packet",
    );
  }

  async path({ service, isUnsent = false }: PathOptions): Promise<TracedPath> {
    if (!isUnsent) {
      await this.#untilSeen();
      await this.#untilQuiet(LULL_MS);
      this.#namedSteps().catch(() => {});
      await this.#untilQuiet(QUIET_MS);
    }
    const { header } = this.#follower;
    const steps = (await this.#namedSteps()).map(({ handle: _, ...step }): TraceStep => {
      const meaning = this.#options.describe(step, service);
      return meaning === undefined ? step : { ...step, meaning };
    });
    const ending = header === undefined ? "not seen" : endingOf(steps);
    return { steps, ending, notes: [], ...(header && { header }) };
  }

  /** The path is read again when the sender is done; earlier lookups are reused. */
  #namedSteps(): Promise<readonly FollowedStep[]> {
    const { steps } = this.#follower;
    if (this.#lastLookUp?.of !== steps.length) {
      this.#lastLookUp = { of: steps.length, steps: this.#lookUp([...steps]) };
    }
    return this.#lastLookUp.steps;
  }

  async #lookUp(steps: readonly FollowedStep[]): Promise<readonly FollowedStep[]> {
    return await this.#options.monitor.finish?.(steps) ?? steps;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#held?.[Symbol.asyncDispose]();
    await this.#monitoring;
    this.#beacon.close();
  }

  async #monitor(): Promise<void> {
    const { lines } = this.#options.monitor;
    for (const line of lines) {
      this.#line = line.join(" ");
      const stderr = await this.#runMonitor(line);
      if (this.#beaconsReported === 0 && line !== lines.at(-1)) continue;
      const why = stderr.trim() || "no reason";
      throw new TraceError(`Cannot trace: '${this.#line}' ended: ${why}`);
    }
  }

  /** Runs the tool and returns its error messages. */
  async #runMonitor(line: readonly string[]): Promise<string> {
    const { parse } = this.#options.monitor;
    // A tool notices a closed pipe only when it prints, which may never happen.
    const args = ["--pdeathsig", "KILL", "--", ...line];
    const { stderr } = await this.#edges.commands.run("setpriv", args, {
      signal: this.#stop.signal,
      timeoutMs: LONGEST_WATCH_MS,
      onLine: (printed) => {
        for (const event of parse(printed)) {
          if (this.#follower.take(event)) this.#lastEventAt = this.#edges.clock.now();
        }
      },
    });
    return stderr;
  }

  async #untilReady(): Promise<void> {
    if (await this.#untilReported()) return;
    throw new SilentMonitorError(
      `Cannot trace: '${this.#line}' reported no marked packet within ` +
        `${this.#readyMs / 1000} s; is the interface lo up?`,
    );
  }

  get #readyMs(): number {
    return this.#options.readyMs ?? READY_MS;
  }

  /**
   * Sends beacons until one of them is reported: earlier events are read then, too, however late the
   * tool printed them. Returns whether that came true in time.
   */
  async #untilReported(): Promise<boolean> {
    const { clock } = this.#edges;
    const deadline = clock.now() + this.#readyMs;
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

  /** `nft -i` prints nothing about its operations. */
  async #untilTable(
    isExpected: (listed: CommandResult) => boolean,
    problem: string,
  ): Promise<void> {
    const { clock, commands } = this.#edges;
    const { signal } = this.#options;
    const deadline = clock.now() + READY_MS;
    const args = ["list", "table", nftFamily(this.#packet.family), this.#table];
    for (;;) {
      const listing = commands.run("nft", args, { signal });
      if (isExpected(await Promise.race([listing, this.#broken.promise]))) return;
      if (clock.now() >= deadline) throw new TraceError(`Cannot trace: ${problem}`);
      await clock.sleep(TABLE_PERIOD_MS, signal);
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
