/**
 * The truth table of one namespace: which pods reach each other.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { rangesOf } from "../net/nested_blocks.ts";
import {
  type AllowedPorts,
  commonPorts,
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

/** Most ends of the namespace, and most others: the rest is counted. */
const MOST_ENDS = 200;

/** Ends that reach the same, and are reached from the same. */
export interface TableGroup {
  readonly kind: Peer["kind"];
  /** The namespace of the pods, if they have the same. */
  readonly namespace?: string;
  readonly pods?: readonly PodKey[];
  /** Selectors of nodes, blocks, and ranges such as `10.0.0.0-10.0.0.6` where exceptions divide a block. */
  readonly blocks?: readonly string[];
  /** The policies that isolate these pods. Absent = none does. */
  readonly isolated?: Readonly<Partial<Record<Direction, readonly PolicyKey[]>>>;
}

/** The connections from and to the pods of a namespace, in one IP family. */
export interface ConnectionTable {
  readonly namespace: string;
  readonly family: IpFamily;
  readonly policies: readonly PolicyKey[];
  /** The groups of the namespace come first. */
  readonly groups: readonly TableGroup[];
  /** `ports[from][to]`, by place in {@linkcode groups}; absent between two other groups. */
  readonly ports: readonly (readonly (AllowedPorts | undefined)[])[];
  /** Groups that are not in the table, because there are very many. */
  readonly groupsLeftOut: number;
}

interface TableEnd {
  readonly group: TableGroup;
  readonly peer: Peer;
  readonly isOwn: boolean;
  readonly ingress: readonly SourcedRuleList[];
  readonly egress: readonly SourcedRuleList[];
}

/** Makes the table. Costs the groups of the namespace times all groups, not pods times pods. */
export function connectionTable(
  state: PolicyState,
  { namespace, family }: { readonly namespace: string; readonly family: IpFamily },
): ConnectionTable {
  const book = new RuleBook(state, family);
  const pods = podGroups([state], family).map((group) => podEnd(book, group, namespace));
  const cell = (from: TableEnd, to: TableEnd): AllowedPorts | undefined =>
    from.isOwn || to.isOwn ? portsBetween(book, from, to) : undefined;
  const found = pods.filter(({ isOwn }) => isOwn);
  const own = found.slice(0, MOST_ENDS);
  const strangers = [...pods.filter(({ isOwn }) => !isOwn), ...blockEnds(own), OUTSIDE];
  const others = mergeAlike(strangers, own, cell);
  const shown = [...others.slice(0, MOST_ENDS), ...others.slice(MOST_ENDS).slice(-1)];
  const ends = [...mergeAlike(own, [...own, ...shown], cell), ...shown];
  return {
    namespace,
    family,
    policies: [...state.policies.values()]
      .filter(({ subject }) =>
        subject?.scope.kind === "namespace" && subject.scope.name === namespace
      ).map(({ key }) => key).sort(),
    groups: ends.map(({ group }) => group),
    ports: ends.map((from) => ends.map((to) => cell(from, to))),
    groupsLeftOut: found.length - own.length + others.length - shown.length,
  };
}

const OUTSIDE: TableEnd = {
  group: { kind: "outside" },
  peer: { kind: "outside" },
  isOwn: false,
  ingress: [],
  egress: [],
};

function podEnd(
  book: RuleBook,
  { pod, pods, blocks, namespace: own }: PodGroup,
  namespace: string,
): TableEnd {
  const [ingress, egress] = [book.rulesOf(pod, "ingress"), book.rulesOf(pod, "egress")];
  const policiesOf = (rules: readonly SourcedRuleList[]) =>
    rules.flatMap(({ list }) => list.policies);
  const isolated = {
    ...(ingress.length > 0 && { ingress: policiesOf(ingress) }),
    ...(egress.length > 0 && { egress: policiesOf(egress) }),
  };
  const isIsolated = ingress.length + egress.length > 0;
  return {
    group: { kind: "pod", namespace: own, pods, ...(isIsolated && { isolated }) },
    peer: { kind: "pod", pod, blocks },
    isOwn: own === namespace,
    ingress,
    egress,
  };
}

/** The blocks and nodes that rules of these pods name. */
function blockEnds(own: readonly TableEnd[]): readonly TableEnd[] {
  const found = new Map<string, TableEnd>();
  for (const { ingress, egress } of own) {
    for (
      const { id, ...source } of [...ingress, ...egress].flatMap((
        { sources },
      ) => [...sources.values()])
    ) {
      if (source.kind === "blocks") {
        const { members } = source;
        const group = { kind: "blocks", blocks: [...rangesOf(members)] } as const;
        found.set(id, { ...OUTSIDE, group, peer: { kind: "blocks", members } });
      } else if (source.kind === "nodes") {
        const { requirements, text } = source.selector;
        const blocks = [requirements.length > 0 ? `nodes ${text}` : "all nodes"];
        const group = { kind: "nodes", blocks } as const;
        found.set(id, { ...OUTSIDE, group, peer: { kind: "nodes", id } });
      }
    }
  }
  return [...found.values()];
}

/** The ports on which both ends let a connection through. */
function portsBetween(book: RuleBook, from: TableEnd, to: TableEnd): AllowedPorts {
  const out = book.grantsOf(from.egress, to.peer);
  const into = book.grantsOf(to.ingress, from.peer);
  return commonPorts(portsOfGrants(out), portsOfGrants(into));
}

/** Makes one end of those whose rows and columns among others are the same. */
function mergeAlike(
  ends: readonly TableEnd[],
  among: readonly TableEnd[],
  cell: (from: TableEnd, to: TableEnd) => AllowedPorts | undefined,
): readonly TableEnd[] {
  const text = (from: TableEnd, to: TableEnd) => portsText(cell(from, to) ?? "all");
  const alike = Map.groupBy(ends, (end) => {
    const { group: { kind, isolated }, isOwn } = end;
    const lines = among.map((each) => [text(end, each), text(each, end)]);
    return JSON.stringify([kind, isOwn && isolated, lines]);
  });
  return [...alike.values()].map((each) => ({
    ...each[0]!,
    group: join(each.map(({ group }) => group)),
  }));
}

function join(groups: readonly TableGroup[]): TableGroup {
  const { namespace, isolated, pods, blocks, ...first } = groups[0]!;
  return {
    ...first,
    ...(namespace !== undefined && groups.every((each) => each.namespace === namespace) &&
      { namespace }),
    ...(isolated && groups.every((each) => each.isolated) && { isolated }),
    ...(pods && { pods: groups.flatMap((each) => each.pods ?? []) }),
    ...(blocks && { blocks: groups.flatMap((each) => each.blocks ?? []) }),
  };
}
