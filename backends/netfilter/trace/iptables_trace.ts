/**
 * Watches packets in a mode of iptables rules: by `nft monitor trace`, or by comparing the counters of
 * rules before and after, where the kernel cannot trace single packets. Counters add nothing to the
 * machine.
 *
 * @module
 */
import {
  type PacketWatch,
  type StartPacketWatch,
  type TracedPath,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { parseSaveLine, targetOf } from "../iptables/iptables_save.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import { firstLine } from "../probe/try_tool.ts";
import { asTraceError, described, endingOf, startNftWatch, type TraceEdges } from "./nft_watch.ts";

/** Watches packets in a mode of iptables rules, by the best method that the machine has. */
export function createIptablesTrace(edges: TraceEdges): StartPacketWatch {
  return async (packet, { signal }) => {
    const choice = await chooseIptables(edges, { family: packet.family, signal });
    if (choice.programs === undefined) throw new TraceError(`Cannot trace: ${choice.problem}`);
    const { variant, save } = choice.programs;
    if (variant === "legacy") {
      const reason = "Rules of iptables-legacy report no packets";
      return await startCounterWatch(edges, packet, save, reason, signal);
    }
    try {
      return await startNftWatch(edges, packet, signal, describe, save.replace(/-save$/, ""));
    } catch (error) {
      if (!(error instanceof TraceError) || signal.aborted) throw error;
      const reason = `Single packets can't be watched here: ${error.message}`;
      return await startCounterWatch(edges, packet, save, reason, signal);
    }
  };
}

/** Interval of reads while waiting for a packet from elsewhere. */
const LOOK_PERIOD_MS = 500;
const SAVE_TIMEOUT_MS = 60_000;

/** Rules with the packets that matched them, by `table chain`. */
type CountedRules = ReadonlyMap<string, readonly CountedRule[]>;

interface CountedRule {
  readonly rule: string;
  readonly packets: number;
}

/** `reason`: why counters are used, a sentence without a full stop. */
export async function startCounterWatch(
  { clock, commands }: TraceEdges,
  packet: WatchedPacket,
  save: string,
  reason: string,
  signal: AbortSignal,
): Promise<PacketWatch> {
  const read = async (): Promise<CountedRules> => {
    const rules = new Map<string, CountedRule[]>();
    let table = "";
    const onLine = (text: string) => {
      const line = parseSaveLine(text);
      if (line?.kind === "table") table = line.table;
      // Rules that never matched are left out: of ten thousand Services, most.
      if (line?.kind !== "rule" || !line.packets) return;
      const place = `${table} ${line.chain}`;
      rules.getOrInsertComputed(place, () => []).push({ rule: line.rule, packets: line.packets });
    };
    try {
      const { code, stderr } = await commands.run(save, ["-c"], {
        signal,
        timeoutMs: SAVE_TIMEOUT_MS,
        onLine,
      });
      if (code === 0) return rules;
      throw new TraceError(`Cannot trace: '${save} -c' says: ${firstLine(stderr)}`);
    } catch (error) {
      throw asTraceError(error);
    }
  };
  const before = await read();
  const stepsNow = async () => {
    const steps = movedRules(before, await read(), packet.comesFrom);
    // A refused packet came no further; later counts belong to other packets.
    const end = steps.findIndex((step) => isRefusal(step) && namesDestination(step.rule, packet));
    return end === -1 ? steps : steps.slice(0, end + 1);
  };
  const stop = new AbortController();
  const look = async () => {
    do await clock.sleep(LOOK_PERIOD_MS, stop.signal); while (
      !(await stepsNow()).some(({ rule }) => namesDestination(rule, packet))
    );
  };
  // The sender of the packet knows when it was sent.
  const seen = packet.comesFrom === "elsewhere" ? look() : new Promise<never>(() => {});
  seen.catch(() => {});
  return {
    way: `${save} -c, before and after`,
    seen,
    async path({ service }): Promise<TracedPath> {
      const steps = described(await stepsNow(), describe, service);
      // Of several rules that rewrite destinations, some belong to other packets.
      const turns = steps.filter(({ rule = "" }) => targetOf(rule) === "DNAT");
      const [, turnedTo] = /(?:^| )--to-destination (\S+)/.exec(turns[0]?.rule ?? "") ?? [];
      return {
        steps,
        ending: endingOf(steps),
        ...(turns.length === 1 && turnedTo !== undefined && { turnedTo }),
        notes: [
          reason,
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

/** Whether a rule matches only this destination. */
function namesDestination(rule = "", { to, port, protocol }: WatchedPacket): boolean {
  const isPort = rule.includes(`--dport ${port} `) || rule.endsWith(`--dport ${port}`);
  const address = /(?:^| )-d (\S+?)(?:\/(?:32|128))?(?: |$)/.exec(rule)?.[1];
  return isPort && rule.includes(`-p ${protocol.toLowerCase()}`) &&
    (address === to || address === undefined);
}

function isRefusal({ verdict }: TraceStep): boolean {
  return verdict === "drop" || verdict === "reject";
}

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

const BUILT_IN = / (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING)$/;

/** The rules that matched something in between, in the order in which a packet comes by. */
function movedRules(
  before: CountedRules,
  after: CountedRules,
  comesFrom: WatchedPacket["comesFrom"],
): readonly TraceStep[] {
  const steps: TraceStep[] = [];
  const walked = new Set<string>();
  const walk = (place: string) => {
    if (walked.has(place)) return;
    walked.add(place);
    const old = packetsByRule(before.get(place));
    for (const [rule, packets] of packetsByRule(after.get(place))) {
      if (packets <= (old.get(rule) ?? 0)) continue;
      const target = targetOf(rule) ?? "";
      const isOurs = target.startsWith("KUBE-");
      // Foreign rules that let a packet continue prove nothing: they may have counted other packets.
      if (!BUILT_IN.test(place) || isOurs || target === "DROP" || target === "REJECT") {
        steps.push({ place, rule, verdict: verdictOf(target) });
      }
      if (isOurs) walk(`${place.split(" ")[0]} ${target}`);
    }
  };
  for (const place of WAYS[comesFrom]) walk(place);
  if (comesFrom === "elsewhere") return steps;
  // A packet from this machine to its own address arrives again, and so do answers to it, which
  // prove nothing.
  const end = steps.length;
  for (const place of ["mangle INPUT", "filter INPUT"]) walk(place);
  return steps.slice(end).some(isRefusal) ? steps : steps.slice(0, end);
}

/** Rules may have been added or removed in between, so they are matched by text, not by position. */
function packetsByRule(rules: readonly CountedRule[] = []) {
  const packets = new Map<string, number>();
  for (const each of rules) packets.set(each.rule, (packets.get(each.rule) ?? 0) + each.packets);
  return packets;
}

/** The verdict of a rule in nft's syntax. */
function verdictOf(target: string): string {
  // After these the kernel looks at the next rule; those that rewrite end a nat table.
  if (/^(|CT|LOG|MARK|NFLOG|TRACE)$/.test(target)) return "continue";
  if (/^(DNAT|MASQUERADE|REDIRECT|SNAT)$/.test(target)) return "accept";
  return /^(ACCEPT|DROP|REJECT|RETURN)$/.test(target) ? target.toLowerCase() : `jump ${target}`;
}

const COMMENT = / -m comment --comment ("(?:[^"\\]|\\.)*"|\S+)/;

const ANY = /(?:)/;

/** The places (`table chain`) and texts of rules with their meanings; the first matching row counts. */
const MEANINGS: readonly (readonly [place: RegExp, rule: RegExp, words: string])[] = [
  [
    /^nat (PREROUTING|OUTPUT)$/,
    /-j KUBE-SERVICES$/,
    "a new connection: is this an address of a Service?",
  ],
  [/^nat POSTROUTING$/, /-j KUBE-POSTROUTING$/, "leaves: does it keep its source?"],
  [
    /^filter (INPUT|FORWARD|OUTPUT)$/,
    /-j KUBE-(SERVICES|EXTERNAL-SERVICES|PROXY-FIREWALL|IPVS-FILTER)$/,
    "is it refused?",
  ],
  [
    / KUBE-/,
    /-j KUBE-MARK-MASQ$/,
    "marked to leave with an address of this node as its source (masquerade)",
  ],
  [/ KUBE-MARK-MASQ$/, ANY, "carries the mark for it from now on"],
  [/^nat KUBE-/, /-j DNAT /, "goes to this endpoint of %s"],
  [/^nat KUBE-/, /-j KUBE-NODEPORTS$/, "is this a node port?"],
  [/^nat KUBE-/, /-j KUBE-(VIP|NP|HP)-/, "nearer to its destination"],
  [/^nat KUBE-/, /-j KUBE-SVC-/, "chooses among the endpoints of %s"],
  [/^nat KUBE-/, /-j KUBE-SVL-/, "chooses among the endpoints of %s on this node"],
  [/^nat KUBE-/, /-j KUBE-EXT-/, "arrives at %s from outside"],
  [/^nat KUBE-/, /-j KUBE-FW-/, "may the sender use %s?"],
  [
    /^nat KUBE-(POSTROUTING|HAIRPIN|HP-.*)$/,
    /-j MASQUERADE/,
    "gets an address of this node as its source (masquerade)",
  ],
  [/^nat KUBE-POSTROUTING$/, /! --mark \S+ -j RETURN$/, "keeps its source"],
  [/ KUBE-/, /-j REJECT/, "refused: the sender gets an error"],
  [/ KUBE-/, /-j DROP/, "dropped: the sender gets no answer"],
];

/** Describes a step in a chain of a Service proxy; `undefined` for others. */
function describe(
  { place, rule }: TraceStep,
  service = "no Service that is known",
): string | undefined {
  if (rule === undefined) return undefined;
  // A comment can contain any text.
  const bare = rule.replace(COMMENT, "");
  return MEANINGS.find(([at, text]) => at.test(place) && text.test(bare))?.[2]
    .replace("%s", () => service);
}
