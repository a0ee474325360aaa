/**
 * Parses `iptables-save -c`, and finds the rules that a packet passed by the changed counters.
 * Pure.
 *
 * @module
 */
import type { TraceStep } from "../../../lib/proxy/packet_trace.ts";
import { SavedRules, targetOf } from "../iptables/iptables_save.ts";

/** A rule and how many packets matched it. */
interface CountedRule {
  /** The rule as `iptables-save` prints it, without `-A` and the chain. */
  readonly rule: string;
  readonly packets: number;
}

/** Rules by `table chain`, in their order. */
export type CountedRules = ReadonlyMap<string, readonly CountedRule[]>;

interface CountedRulesOptions {
  /** Whether to omit rules that never matched: of ten thousand Services, most. @default {false} */
  readonly usedOnly?: boolean;
}

/** A reader of `iptables-save -c` that ignores lines without counters. */
export function countedRulesReader(
  { usedOnly = false }: CountedRulesOptions = {},
): SavedRules<CountedRule> {
  return new SavedRules(({ rule, packets }) =>
    packets === undefined || (usedOnly && packets === 0) ? undefined : { rule, packets }
  );
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

/** The known facts of the packet. */
interface CountedPath {
  readonly comesFrom: keyof typeof WAYS;
}

/** The rules that matched something in between, in the order in which a packet comes by. */
export function movedRules(
  before: CountedRules,
  after: CountedRules,
  { comesFrom }: CountedPath,
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
export function verdictOf(target = ""): string {
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
