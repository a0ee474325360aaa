/**
 * How often each rule of iptables matched: what `iptables-save -c` prints, and which rules a packet
 * passed by what has changed in it. Pure.
 *
 * @module
 */
import type { TraceStep } from "../../../lib/explain/packet_trace.ts";
import { SavedRules, targetOf } from "../iptables/iptables_save.ts";

/** A rule and how many packets matched it. */
interface CountedRule {
  /** As `iptables-save` spells it, without `-A` and the chain. */
  readonly rule: string;
  readonly packets: number;
}

/** Rules by `table chain`, in their order. */
export type CountedRules = ReadonlyMap<string, readonly CountedRule[]>;

/** Which rules are kept. */
interface CountedRulesOptions {
  /** Whether those that never matched are left out: of ten thousand Services it is most. @default {false} */
  readonly usedOnly?: boolean;
}

/** A reader of `iptables-save -c`, which passes over whatever is no rule with counters. */
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

/** What is known of the packet. */
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
  const told = new Set<string>();
  const walk = (key: string) => {
    if (told.has(key)) return;
    told.add(key);
    for (const { rule, target } of movedRulesOf(key, before, after)) {
      const chain = `${key.split(" ")[0]} ${target}`;
      const isOurs = isServiceChainName(target);
      // Rules of others that let it go on tell nothing: they may have counted anybody's packets.
      if (!isBuiltIn(key) || isOurs || ENDS.has(target)) {
        steps.push({ place: key, rule, verdict: verdictOf(target) });
      }
      if (isOurs) walk(chain);
    }
  };
  for (const key of WAYS[comesFrom]) walk(key);
  if (comesFrom === "elsewhere") return steps;
  // What this machine sends to an address of its own comes in again; answers to it come in as well, and
  // tell nothing.
  const way = steps.length;
  for (const key of ["mangle INPUT", "filter INPUT"]) walk(key);
  const isRefused = steps.slice(way).some(({ verdict }) => /^(drop|reject)$/.test(verdict));
  return isRefused ? steps : steps.slice(0, way);
}

/** What a rule does, in the words of nft. */
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
  // Rules may have come and gone meanwhile: each is known by its text, not by its place.
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
