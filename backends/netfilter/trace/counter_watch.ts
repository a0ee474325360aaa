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
import { asTraceError, endingOf, type TraceEdges } from "./nft_watch.ts";
import { SavedRules, targetOf } from "../iptables/iptables_save.ts";

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
  // Rules that never matched are left out: of ten thousand Services, most.
  const reader = new SavedRules(({ rule, packets = 0 }) =>
    packets === 0 ? undefined : { rule, packets }
  );
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

/** A rule and how many packets matched it. */
interface CountedRule {
  /** The rule as `iptables-save` prints it, without `-A` and the chain. */
  readonly rule: string;
  readonly packets: number;
}

/** Rules by `table chain`, in their order. */
type CountedRules = ReadonlyMap<string, readonly CountedRule[]>;

/** Chains in the order in which a packet comes by. */
const WAYS = {
  "this machine": [
    ...["raw OUTPUT", "mangle OUTPUT", "nat OUTPUT", "filter OUTPUT"],
    ...["mangle POSTROUTING", "nat POSTROUTING"],
  ],
  elsewhere: [
    ...["raw PREROUTING", "mangle PREROUTING", "nat PREROUTING"],
    ...["mangle INPUT", "filter INPUT", "mangle FORWARD", "filter FORWARD"],
    ...["mangle POSTROUTING", "nat POSTROUTING"],
  ],
} as const;

/** The rules that matched something in between, in the order in which a packet comes by. */
function movedRules(
  before: CountedRules,
  after: CountedRules,
  { comesFrom }: Pick<WatchedPacket, "comesFrom">,
): readonly TraceStep[] {
  const steps: TraceStep[] = [];
  const counted = new Set<string>();
  const walk = (key: string) => {
    if (counted.has(key)) return;
    counted.add(key);
    for (const { rule, target } of movedRulesOf(key, before, after)) {
      const chain = `${key.split(" ")[0]} ${target}`;
      const isOurs = isServiceChainName(target);
      // Foreign rules that let a packet continue prove nothing: they may have counted other
      // packets.
      if (!isBuiltIn(key) || isOurs || ENDS.has(target)) {
        steps.push({ place: key, rule, verdict: verdictOf(target) });
      }
      if (isOurs) walk(chain);
    }
  };
  for (const key of WAYS[comesFrom]) walk(key);
  if (comesFrom === "elsewhere") return steps;
  // A packet from this machine to its own address arrives again, and so do answers to it, which
  // prove nothing.
  const way = steps.length;
  for (const key of ["mangle INPUT", "filter INPUT"]) walk(key);
  const isRefused = steps.slice(way).some(({ verdict }) => /^(drop|reject)$/.test(verdict));
  return isRefused ? steps : steps.slice(0, way);
}

/** The verdict of a rule in nft's syntax. */
function verdictOf(target = ""): string {
  if (target === "" || GOING_ON.has(target)) return "continue";
  if (REWRITING.has(target)) return "accept";
  return /^(ACCEPT|DROP|REJECT|RETURN)$/.test(target) ? target.toLowerCase() : `jump ${target}`;
}

/** Targets of the kernel after which the next rule is looked at, and those that end a nat table. */
const GOING_ON: ReadonlySet<string> = new Set(["CT", "LOG", "MARK", "NFLOG", "TRACE"]);
const REWRITING: ReadonlySet<string> = new Set(["DNAT", "MASQUERADE", "REDIRECT", "SNAT"]);
const ENDS: ReadonlySet<string> = new Set(["DROP", "REJECT"]);

function movedRulesOf(key: string, before: CountedRules, after: CountedRules) {
  // Rules may have been added or removed in between, so they are matched by text, not by position.
  const old = new Map<string, number>();
  for (const { rule, packets } of before.get(key) ?? []) {
    old.set(rule, (old.get(rule) ?? 0) + packets);
  }
  const moved: { rule: string; target: string }[] = [];
  const now = new Map<string, number>();
  for (const { rule, packets } of after.get(key) ?? []) {
    now.set(rule, (now.get(rule) ?? 0) + packets);
  }
  for (const [rule, packets] of now) {
    if (packets > (old.get(rule) ?? 0)) moved.push({ rule, target: targetOf(rule) ?? "" });
  }
  return moved;
}

function isBuiltIn(key: string): boolean {
  return /^\S+ (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING)$/.test(key);
}

function isServiceChainName(name: string): boolean {
  return name.startsWith("KUBE-");
}
