/**
 * Finds the iptables rules that a packet passed by comparing counters before and after, for
 * machines whose kernel cannot trace single packets. Adds nothing to the machine.
 *
 * @module
 */
import {
  type PacketWatch,
  type TracedPath,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { firstLine } from "../probe/try_tool.ts";
import { asTraceError } from "./held_table.ts";
import { type CountedRules, countedRulesReader, movedRules } from "./rule_counters.ts";
import { targetOf } from "../iptables/iptables_save.ts";
import { endingOf, type TraceEdges } from "./trace_event.ts";

interface CounterWatchOptions {
  /** E.g. `iptables-legacy-save`. */
  readonly save: string;
  /** The reason why counters are used, as a sentence without a full stop. */
  readonly reason: string;
  readonly describe: (step: TraceStep, service: string | undefined) => string | undefined;
  readonly signal: AbortSignal;
}

/** Interval of reads while waiting for a packet from elsewhere. */
const LOOK_PERIOD_MS = 500;
const SAVE_TIMEOUT_MS = 60_000;

/** Throws a TraceError when the counters can't be read. */
export async function startCounterWatch(
  edges: TraceEdges,
  packet: WatchedPacket,
  options: CounterWatchOptions,
): Promise<PacketWatch> {
  const before = await readCounters(edges, options);
  const stop = new AbortController();
  const isMoved = async () =>
    stepsOf(before, await readCounters(edges, options), packet).some(({ rule }) =>
      rule !== undefined && namesDestination(rule, packet)
    );
  // The sender of the packet knows when it was sent.
  const looking = packet.comesFrom === "elsewhere" ? look(edges, isMoved, stop.signal) : never();
  looking.catch(() => {});
  return {
    way: `${options.save} -c, before and after`,
    seen: looking,
    async path({ service }): Promise<TracedPath> {
      const after = await readCounters(edges, options);
      const steps = stepsOf(before, after, packet).map((step) => {
        const meaning = options.describe(step, service);
        return meaning === undefined ? step : { ...step, meaning };
      });
      const turnedTo = destinationOf(steps);
      return {
        steps,
        ending: endingOf(steps),
        ...(turnedTo !== undefined && { turnedTo }),
        notes: [
          options.reason,
          "Shows everything that was counted in the meantime, which may include other packets",
        ],
      };
    },
    [Symbol.asyncDispose]() {
      stop.abort();
      return Promise.resolve();
    },
  };
}

function stepsOf(
  before: CountedRules,
  after: CountedRules,
  packet: WatchedPacket,
): readonly TraceStep[] {
  const steps = movedRules(before, after, packet);
  // A refused packet came no further; later counts belong to other packets.
  const end = steps.findIndex(({ verdict, rule }) =>
    /^(drop|reject)$/.test(verdict) && namesDestination(rule ?? "", packet)
  );
  return end === -1 ? steps : steps.slice(0, end + 1);
}

/** The destination if a single rule matches; among several, some belong to other packets. */
function destinationOf(steps: readonly TraceStep[]): string | undefined {
  const turns = steps.filter(({ rule = "" }) => targetOf(rule) === "DNAT");
  return turns.length === 1
    ? /(?:^| )--to-destination (\S+)/.exec(turns[0]?.rule ?? "")?.[1]
    : undefined;
}

/** Whether a rule matches only this destination. */
function namesDestination(rule: string, { to, port, protocol }: WatchedPacket): boolean {
  const isPort = rule.includes(`--dport ${port} `) || rule.endsWith(`--dport ${port}`);
  const address = /(?:^| )-d (\S+?)(?:\/(?:32|128))?(?: |$)/.exec(rule)?.[1];
  return isPort && rule.includes(`-p ${protocol.toLowerCase()}`) &&
    (address === to || address === undefined);
}

async function look(
  { clock }: TraceEdges,
  isMoved: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  do await clock.sleep(LOOK_PERIOD_MS, signal); while (!await isMoved());
}

function never(): Promise<never> {
  return new Promise<never>(() => {});
}

async function readCounters(
  { commands }: TraceEdges,
  { save, signal }: Pick<CounterWatchOptions, "save" | "signal">,
): Promise<CountedRules> {
  const reader = countedRulesReader({ usedOnly: true });
  try {
    const { code, stderr } = await commands.run(save, ["-c"], {
      signal,
      timeoutMs: SAVE_TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
    if (code === 0) return reader.rules;
    throw new TraceError(`Cannot trace: '${save} -c' says: ${firstLine(stderr)}`);
  } catch (error) {
    throw asTraceError(error);
  }
}
