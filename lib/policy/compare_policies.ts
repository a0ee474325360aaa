/**
 * Compares policies: lists the pods that other policies cut off from each other, and those that
 * they connect.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import {
  type AllowedPorts,
  commonPorts,
  type Grant,
  type Peer,
  type PodGroup,
  podGroups,
  portsOfGrants,
  portsText,
  RuleBook,
} from "./allowed_ports.ts";
import type { Direction, PodKey, PolicyKey } from "./policy_plan.ts";
import type { PolicyState } from "./policy_state.ts";
import type { SourcedRuleList } from "./rule_lists.ts";

/** Most pairs of groups that are compared: 1,000 policies that all change are 2 s of work. */
const MOST_PAIRS = 100_000;
/** Most pods of an end that are named. */
const MOST_NAMED = 20;

/** Ends of changed connections. */
export interface ChangedEnd {
  /** Whether it is every address of no pod. */
  readonly isOutside: boolean;
  /** Some of the pods, sorted. */
  readonly pods: readonly PodKey[];
  readonly count: number;
}

/** Connections that change alike. */
export interface ConnectionChange {
  readonly from: ChangedEnd;
  readonly to: ChangedEnd;
  readonly before: AllowedPorts;
  readonly after: AllowedPorts;
  /** The end whose rules decide it, and the policies that do; none = no policy isolates it any more. */
  readonly decidedBy: Direction;
  readonly policies: readonly PolicyKey[];
}

/** The changes in one IP family. */
export interface PolicyComparison {
  readonly family: IpFamily;
  readonly changes: readonly ConnectionChange[];
  /** Pairs of different pods that lose or gain ports. One that does both counts twice. */
  readonly cutPairs: number;
  readonly openedPairs: number;
  /** Pairs of groups that were not compared, because there are too many. */
  readonly groupPairsLeftOut: number;
}

interface GroupChange extends Omit<ConnectionChange, "from" | "to"> {
  readonly from: readonly ComparedGroup[];
  readonly to: readonly ComparedGroup[];
}

/** A group with its rules before and after. */
interface ComparedGroup {
  readonly group: PodGroup | undefined;
  readonly peer: Peer;
  readonly rules: Readonly<Record<Direction, BeforeAndAfter<readonly SourcedRuleList[]>>>;
  readonly isChanged: boolean;
}

type BeforeAndAfter<T> = readonly [before: T, after: T];

const OUTSIDE: ComparedGroup = {
  group: undefined,
  peer: { kind: "outside" },
  rules: { ingress: [[], []], egress: [[], []] },
  isChanged: false,
};

/**
 * Compares two states of the same pods and namespaces. Only pairs with a pod whose own rules change are
 * looked at, and pods that no policy distinguishes are one.
 */
export function comparePolicies(
  [before, after]: BeforeAndAfter<PolicyState>,
  family: IpFamily,
): PolicyComparison {
  const books = [new RuleBook(before, family), new RuleBook(after, family)] as const;
  const groups = podGroups([before, after], family).map((group) => compareGroup(books, group));
  const all = [...groups, OUTSIDE];
  const changed = groups.filter(({ isChanged }) => isChanged);
  const found: GroupChange[] = [];
  for (const [from, to] of changedPairs(changed, all).take(MOST_PAIRS)) {
    const change = comparePair(books, from, to);
    if (change) found.push(change);
  }
  const pairs = changed.length * (2 * all.length - changed.length);
  const changes = joinEnds(joinEnds(found, "from"), "to");
  return {
    family,
    changes: changes.map((each) => ({ ...each, from: endOf(each.from), to: endOf(each.to) })),
    cutPairs: count(changes, ({ before, after }) => !isWithin(before, after)),
    openedPairs: count(changes, ({ before, after }) => !isWithin(after, before)),
    groupPairsLeftOut: Math.max(0, pairs - MOST_PAIRS),
  };
}

/** Every pair in which the rules of an end change, once. */
function* changedPairs(
  changed: readonly ComparedGroup[],
  all: readonly ComparedGroup[],
): Generator<readonly [from: ComparedGroup, to: ComparedGroup], undefined> {
  for (const own of changed) {
    for (const other of all) {
      yield [own, other];
      // If the other policy also changes, the loop visits this pair again.
      if (!other.isChanged) yield [other, own];
    }
  }
}

function compareGroup(books: BeforeAndAfter<RuleBook>, group: PodGroup): ComparedGroup {
  const rulesOf = (direction: Direction): BeforeAndAfter<readonly SourcedRuleList[]> => [
    books[0].rulesOf(group.pod, direction),
    books[1].rulesOf(group.pod, direction),
  ];
  const rules = { ingress: rulesOf("ingress"), egress: rulesOf("egress") };
  const isChanged = [rules.ingress, rules.egress].some(([was, is]) => textOf(was) !== textOf(is));
  return { group, peer: { kind: "pod", pod: group.pod, blocks: group.blocks }, rules, isChanged };
}

/** The name of a set is its selector, so equal names mean equal peers. */
function textOf(rules: readonly SourcedRuleList[]): string {
  return JSON.stringify(rules.map(({ list }) => [list.tier, list.policies, list.rules]));
}

function comparePair(
  books: BeforeAndAfter<RuleBook>,
  from: ComparedGroup,
  to: ComparedGroup,
): GroupChange | undefined {
  if (from === to && from.group?.pods.length === 1) return undefined;
  const grants = (direction: Direction, side: 0 | 1): readonly Grant[] => {
    const [own, other] = direction === "egress" ? [from, to] : [to, from];
    return books[side].grantsOf(own.rules[direction][side], other.peer);
  };
  const ports = (side: 0 | 1) => {
    const [egress, ingress] = [grants("egress", side), grants("ingress", side)];
    const [out, into] = [portsOfGrants(egress), portsOfGrants(ingress)];
    return { egress, ingress, out, both: commonPorts(out, into) };
  };
  const [was, is] = [ports(0), ports(1)];
  if (portsText(was.both) === portsText(is.both)) return undefined;
  const isCut = !isWithin(was.both, is.both);
  // A sender that no longer may is the reason; else it is the receiver.
  const decidedBy = portsText(was.out) !== portsText(is.out) &&
      (isCut ? !isWithin(was.both, is.out) : textsDiffer(was.egress, is.egress))
    ? "egress"
    : "ingress";
  const decisive = (decidedBy === "egress" ? from : to).rules[decidedBy][1];
  const granting = decidedBy === "egress" ? is.egress : is.ingress;
  const policies = isCut
    ? decisive.flatMap(({ list }) => list.policies)
    : granting.flatMap(({ policy }) => policy ?? []);
  return {
    from: [from],
    to: [to],
    before: was.both,
    after: is.both,
    decidedBy,
    policies: [...new Set(policies)],
  };
}

function textsDiffer(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) !== JSON.stringify(right);
}

/** Whether the second ports have all of the first. */
function isWithin(inner: AllowedPorts, outer: AllowedPorts): boolean {
  return portsText(commonPorts(inner, outer)) === portsText(inner);
}

/** Makes one change of those that differ in one end only. */
function joinEnds(changes: readonly GroupChange[], end: "from" | "to"): readonly GroupChange[] {
  const numbers = new Map<ComparedGroup, number>();
  const number = (group: ComparedGroup) => numbers.getOrInsertComputed(group, () => numbers.size);
  const alike = Map.groupBy(changes, ({ from, to, ...rest }) => {
    const [fixed, joined] = end === "from" ? [to, from] : [from, to];
    return JSON.stringify([fixed.map(number), joined.includes(OUTSIDE), rest]);
  });
  // Ends are joined at once: one after the other, they would be copied again and again.
  return [...alike.values()].map((each) => ({
    ...each[0]!,
    [end]: each.flatMap((change) => change[end]),
  }));
}

function endOf(groups: readonly ComparedGroup[]): ChangedEnd {
  const pods = groups.flatMap(({ group }) => group?.pods ?? []).sort();
  return {
    isOutside: groups.includes(OUTSIDE),
    pods: pods.slice(0, MOST_NAMED),
    count: pods.length,
  };
}

/** Pairs of different pods. */
function count(
  changes: readonly GroupChange[],
  isCounted: (change: GroupChange) => boolean,
): number {
  const size = (groups: readonly ComparedGroup[]) =>
    groups.reduce((sum, { group }) => sum + (group?.pods.length ?? 0), 0);
  return changes.filter(isCounted).reduce((sum, { from, to }) => {
    const senders = new Set(from);
    return sum + size(from) * size(to) - size(to.filter((group) => senders.has(group)));
  }, 0);
}
