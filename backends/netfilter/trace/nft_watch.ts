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
import { messageOf } from "../../../lib/log/message_of.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import {
  type PacketWatch,
  type TraceEnding,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { NftSession } from "../nft/held_nft.ts";
import { nftFamily } from "../nft/nft_objects.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";
import { PacketFollower, PREFIX } from "./nft_trace_events.ts";
import { lookUpRules } from "./rule_texts.ts";

/** The dependencies of packet watches, and a name that distinguishes concurrent traces. */
export interface TraceEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Network;
  /** The process id and a number: containers on one network may have the same process ids. */
  readonly id: string;
}

/** Says what a step means in a mode; `undefined` for rules of other programs. */
type DescribeStep = (step: TraceStep, service: string | undefined) => string | undefined;

/** Adds their meanings to steps. */
export function described(
  steps: readonly TraceStep[],
  describe: DescribeStep,
  service: string | undefined,
): readonly TraceStep[] {
  return steps.map((step) => {
    const meaning = describe(step, service);
    return meaning === undefined ? step : { ...step, meaning };
  });
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
/** A packet without an event in this time did not pass the rules. */
const SEEN_MS = 1500;
const MOST_QUIET_CHECKS = 50;

/**
 * Starts a watch. `iptables`: the tool in whose words the rules of its tables are described. Throws a
 * TraceError.
 */
export async function startNftWatch(
  edges: TraceEdges,
  packet: WatchedPacket,
  signal: AbortSignal,
  describe: DescribeStep,
  iptables?: string,
): Promise<PacketWatch> {
  const { clock, commands, network } = edges;
  // deno-lint-ignore no-undef -- the linter does not know this global yet
  await using undo = new AsyncDisposableStack();
  try {
    const address = parseIpAddress(packet.family === "IPv4" ? "127.0.0.1" : "::1");
    const beacon = network.listenUdp({ hostname: address, port: 0 });
    undo.defer(() => beacon.close());
    const beaconPort = beacon.addr.port;
    const table = `${PREFIX}${edges.id}`;
    const follower = new PacketFollower(table, beaconPort);
    const nft = new NftSession(clock, commands);
    undo.defer(async () => {
      nft.end();
      await nft.ended.catch(() => {});
    });
    const marking = markTableText(packet, table, beaconPort);
    const write = async (text: string): Promise<void> => {
      if (await nft.write(text.trimEnd(), READY_MS) === "applied") return;
      // A process of its own gives the reason.
      const stdin = marking.table + marking.rule;
      const trial = await commands.run("nft", ["-c", "-f", "-"], { stdin, signal });
      throw trial.code === 0
        ? new TraceError("Cannot trace: 'nft -i' did not write the table that marks the packet")
        : refusal(trial.stderr);
    };
    /** Waits for something, but not for longer than this time. */
    const within = async (ms: number, awaited: Promise<unknown>): Promise<void> => {
      const enough = new AbortController();
      const pause = clock.sleep(ms, AbortSignal.any([signal, enough.signal]));
      try {
        await Promise.race([awaited, pause]);
      } finally {
        enough.abort();
        await pause.catch(() => {});
      }
    };
    await write(marking.table);

    const seen = Promise.withResolvers<void>();
    const broken = Promise.withResolvers<never>();
    for (const each of [seen.promise, broken.promise]) each.catch(() => {});
    nft.ended.then((stderr) => {
      throw new TraceError(`The table that marks the packet is gone: ${firstLine(stderr)}`);
    }).catch(broken.reject);
    broken.promise.catch(seen.reject);
    let [beaconsSent, beaconsReported, lastEventAt] = [0, 0, 0];
    let reported = Promise.withResolvers<void>();
    /**
     * nft reads all rules of the machine before it watches, only to print their texts: at ten thousand
     * Services this takes one to three seconds and 150 MB. The last command determines what is read
     * (`nft_cache_evaluate()`; checked with 1.0.6), so a listing of a table with two rules follows the
     * monitor, which never ends. Rules are then printed as numbers and looked up afterwards. An nft
     * without this optimization reads everything.
     */
    const command = `monitor trace; list table ${nftFamily(packet.family)} ${table}`;
    const stop = new AbortController();
    // A tool notices a closed pipe only when it prints, which may never happen.
    const args = ["--pdeathsig", "KILL", "--", "nft", "-a", command];
    const monitoring = commands.run("setpriv", args, {
      signal: stop.signal,
      timeoutMs: LONGEST_WATCH_MS,
      onLine(line) {
        const about = follower.take(line);
        if (about === "packet") {
          lastEventAt = clock.now();
          if (follower.header) seen.resolve();
        } else if (about === "beacon") {
          beaconsReported++;
          reported.resolve();
          reported = Promise.withResolvers();
        }
      },
    }).then(({ stderr }) => {
      throw new TraceError(
        `Cannot trace: 'nft -a ${command}' ended: ${stderr.trim() || "no reason"}`,
      );
    }).catch(broken.reject);
    undo.defer(async () => {
      stop.abort();
      await monitoring;
    });

    /**
     * Sends beacons until one of them is reported: earlier events are read then, too, however late the
     * tool printed them. Returns whether that came true in time.
     */
    const caughtUp = async (): Promise<boolean> => {
      const deadline = clock.now() + READY_MS;
      const sentBefore = beaconsSent;
      // So many reported ones may be of before.
      let count = 1 + sentBefore - beaconsReported;
      let period = FIRST_BEACON_PERIOD_MS;
      while (beaconsReported <= sentBefore) {
        if (clock.now() >= deadline) return false;
        for (; count > 0; count--) {
          beaconsSent++;
          const target = { hostname: address, port: beaconPort };
          await beacon.send(new Uint8Array(1), target).catch(() => {});
        }
        await within(period, Promise.race([reported.promise, broken.promise]));
        count = 1;
        period = Math.min(2 * period, BEACON_PERIOD_MS);
      }
      return true;
    };
    if (!await caughtUp()) {
      throw new TraceError(
        `Cannot trace: 'nft -a ${command}' reported no marked packet within ${
          READY_MS / 1000
        } s; ` +
          "is the interface lo up?",
      );
    }
    // Only now: in a busy Service the first packet comes at once.
    await write(marking.rule);

    const untilQuiet = async (): Promise<void> => {
      for (let check = 0; check < MOST_QUIET_CHECKS; check++) {
        const last = lastEventAt;
        const left = last + QUIET_MS - clock.now();
        if (left > 0) await clock.sleep(left, signal);
        else if (await caughtUp(), lastEventAt === last) return;
      }
    };
    const owned = undo.move();
    return {
      way: "nft monitor trace",
      seen: seen.promise,
      async path({ service, isUnsent = false }) {
        let found: readonly TraceStep[] = [];
        if (!isUnsent) {
          // Events arrive a moment after the packet was sent.
          await caughtUp();
          await within(SEEN_MS, seen.promise);
          await untilQuiet();
          found = await lookUpRules(commands, follower.steps, iptables);
        }
        const steps = described(found, describe, service);
        const { header } = follower;
        const ending = header === undefined ? "not seen" : endingOf(steps);
        return { steps, ending, notes: [], ...(header && { header }) };
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  } catch (error) {
    throw asTraceError(error);
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

/** Before all other rules: the table raw is at -300. */
const FIRST = -350;
/**
 * After conntrack at -200, and before every rule of a Service proxy. If flows can only be
 * identified by conntrack, the marked packet must be the first of one.
 */
const KNOWS_FLOWS = -175;

/**
 * Renders the commands that make the table with the rule that marks beacons, and the rule that marks
 * the packet, each on one line, as `nft -i` reads them. Only the first matching packet is marked, since
 * a retransmitted SYN would be reported twice.
 */
function markTableText(
  { family, comesFrom, from, to, port, protocol, sourcePort }: WatchedPacket,
  table: string,
  beaconPort: number,
): { readonly table: string; readonly rule: string } {
  const ip = nftFamily(family);
  const th = protocol.toLowerCase();
  const knowsFlows = comesFrom === "elsewhere" && protocol !== "TCP";
  const hook = comesFrom === "elsewhere" ? "prerouting" : "output";
  const beacon = `${ip} daddr ${family === "IPv4" ? "127.0.0.1" : "::1"} ` +
    `udp sport ${beaconPort} udp dport ${beaconPort} meta nftrace set 1`;
  const priority = knowsFlows ? KNOWS_FLOWS : FIRST;
  const chain = (hook: string, rule: string) =>
    `chain ${hook} { type filter hook ${hook} priority ${priority}; ${rule}}`;
  // A chain without a rule shows where the packet comes in again.
  const chains = `${chain("prerouting", "")}; ${chain("output", `${beacon}; `)}`;
  const mark = [
    ...(from === undefined ? [] : [`${ip} saddr ${from}`]),
    `${ip} daddr ${to}`,
    ...(sourcePort === undefined ? [] : [`${th} sport ${sourcePort}`]),
    `${th} dport ${port}`,
    ...(protocol === "TCP" ? ["tcp flags & (syn | ack) == syn"] : []),
    ...(knowsFlows ? ["ct state new"] : []),
    "limit rate 1/day burst 1 packets meta nftrace set 1",
  ];
  return {
    table: `add table ${ip} ${table} { flags owner; ${chains}; }\n`,
    rule: `add rule ${ip} ${table} ${hook} ${mark.join(" ")}\n`,
  };
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
