/**
 * Computes the rules of a pod's traffic from the policies that select it.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { contentIdOfAll } from "./content_id.ts";
import type { PeerSource } from "./peer_source.ts";
import { mergePortRanges, type ParsedRule, type Policy } from "./policy.ts";
import type {
  Direction,
  PeerSetId,
  PodKey,
  PolicyRule,
  PortRange,
  RuleList,
  RuleListId,
  Tier,
} from "./policy_plan.ts";
import { type PolicyPod, portFinder } from "./policy_pod.ts";

/** A list, and the sources of the sets that it names. */
export interface SourcedRuleList {
  readonly list: RuleList;
  readonly sources: ReadonlyMap<PeerSetId, PeerSource>;
}

/** The inputs of the lists of a pod besides the policies. */
interface ListedPod {
  readonly pod: PolicyPod;
  readonly direction: Direction;
  readonly family: IpFamily;
}

/** The inputs of one of them. */
interface ListedTier extends ListedPod {
  readonly tier: Tier;
  readonly next?: RuleListId | undefined;
}

type NamedRuleList = SourcedRuleList & { readonly id: RuleListId };

/** The tiers with an effect on a pod, in their order. A pod that NetworkPolicies isolate has no baseline. */
function tiersOf(policies: readonly Policy[], direction: Direction): readonly Tier[] {
  const found = new Set(
    policies.filter(({ rules }) => rules[direction] !== undefined).map(({ tier }) => tier),
  );
  if (found.has("NetworkPolicy")) found.delete("Baseline");
  return (["Admin", "NetworkPolicy", "Baseline"] as const).filter((tier) => found.has(tier));
}

/** Rules of lists that are kept, where an empty list counts as one. */
const MOST_KEPT = 50_000;
/** Ports that a rule of iptables can have. nftables has a set for them. */
const PORTS_PER_RULE = 15;

/** Makes each list once for all pods that the same policies select, and names it by its content. */
export class RuleListCache {
  readonly #lists = new Map<string, NamedRuleList>();
  readonly #needs = new Map<string, ListNeed>();
  #kept = 0;

  /** The lists that a pod needs in a direction, without making them; none = no policy has an effect. */
  needsOf(policies: readonly Policy[], of: ListedPod): readonly ListNeed[] {
    return tiersOf(policies, of.direction).map((tier) => this.#needOf(policies, { ...of, tier }));
  }

  #needOf(policies: readonly Policy[], of: ListedTier): ListNeed {
    const key = contentIdOfAll(keyTexts(policies, of));
    const known = this.#needs.get(key);
    if (known) return known;
    const { tier, direction } = of;
    const need = { key, tier, direction, rules: makeRuleList(policies, of, 0).list.excess ?? 0 };
    this.#keep(1);
    this.#needs.set(key, need);
    return need;
  }

  /**
   * As {@linkcode makeRuleList}, of the lists that a pod needs in a direction: each names the next one.
   * Equal lists have the same id.
   */
  listsOf(
    needs: readonly ListNeed[],
    policies: readonly Policy[],
    { mostRules, ...of }: ListedPod & { readonly mostRules: number },
  ): readonly NamedRuleList[] {
    const found: NamedRuleList[] = [];
    for (const { key, tier, rules } of needs.toReversed()) {
      const next = found[0]?.id;
      const fullKey = `${key} ${rules > mostRules} ${next ?? ""}`;
      let list = this.#lists.get(fullKey);
      if (list === undefined) {
        const made = makeRuleList(policies, { ...of, tier, next }, mostRules);
        list = { ...made, id: idOf(made.list) };
        this.#keep(1 + made.list.rules.length);
        this.#lists.set(fullKey, list);
      }
      found.unshift(list);
    }
    return found;
  }

  #keep(rules: number): void {
    if (this.#kept + rules > MOST_KEPT) this.clear();
    this.#kept += rules;
  }

  /** Forgets the lists: a policy has changed. */
  clear(): void {
    this.#lists.clear();
    this.#needs.clear();
    this.#kept = 0;
  }
}

function* keyTexts(
  policies: readonly Policy[],
  { pod, direction, family, tier }: ListedTier,
): Generator<string, void, void> {
  yield `${direction} ${family} ${tier}`;
  const portOf = portFinder(pod);
  for (const { key, names, rules, ...policy } of policies) {
    if (policy.tier !== tier || rules[direction] === undefined) continue;
    yield key;
    if (direction !== "ingress") continue;
    for (const name of names) yield `${portOf(name) ?? 0}`;
  }
}

function idOf({ direction, tier, policies, rules, next, excess }: RuleList): RuleListId {
  function* texts() {
    yield direction;
    if (tier !== "NetworkPolicy") yield `${tier}, then ${next ?? "none"}`;
    if (excess !== undefined) yield `too many rules: ${excess}`;
    yield* policies;
    for (const rule of rules) yield JSON.stringify(rule);
  }
  return contentIdOfAll(texts()) as RuleListId;
}

/**
 * Makes the rules of a tier for a pod in one direction, from the policies that select it, in their order.
 * A list that would have more rules has none.
 */
function makeRuleList(
  policies: readonly Policy[],
  { pod, direction, family, tier, next }: ListedTier,
  mostRules: number,
): SourcedRuleList {
  const own = policies.filter((each) => each.tier === tier && each.rules[direction] !== undefined);
  const rules: PolicyRule[] = [];
  const sources = new Map<PeerSetId, PeerSource>();
  const portOf = portFinder(pod);
  let size = 0;
  for (const { key: policy, rules: parsed } of own) {
    for (const rule of parsed[direction]?.[family] ?? []) {
      const ports = portsFor(rule, portOf);
      // Names that stand for nothing here: the rule must not become one for every port.
      if (ports?.length === 0) continue;
      const { index, name, action, peers } = rule;
      size += (peers?.length ?? 1) * Math.ceil((ports?.length ?? 1) / PORTS_PER_RULE);
      if (size > mostRules) continue;
      for (const peer of peers ?? []) sources.set(peer.id, peer);
      rules.push({
        policy,
        index,
        ...(name !== undefined && { name }),
        ...(action && { action }),
        ...(peers && { peers: peers.map(({ id }) => id) }),
        ...(ports && { ports }),
      });
    }
  }
  const list = { direction, tier, policies: own.map(({ key }) => key), ...(next && { next }) };
  if (size > mostRules) return { list: { ...list, rules: [], excess: size }, sources: new Map() };
  return { list: { ...list, rules }, sources };
}

function portsFor(
  { ports, names }: ParsedRule,
  portOf: ReturnType<typeof portFinder>,
): readonly PortRange[] | undefined {
  if (names === undefined) return ports;
  const found = names.flatMap((name) => {
    const port = portOf(name);
    return port === undefined ? [] : [{ protocol: name.protocol, from: port, to: port }];
  });
  return mergePortRanges([...ports ?? [], ...found]);
}

/**
 * Most rules of all lists of a namespace's pods on one node, in one family. Pods share equal lists. Each
 * pod may have a list of its own, so a bound of lists alone does not bound what a tenant can make a node
 * write.
 */
export const MOST_NODE_RULES = 20_000;

/** Most rules of a list. */
export const MOST_RULES = 5_000;

/** A list that a pod needs. Pods that need lists with the same key share one. */
export interface ListNeed {
  readonly key: string;
  readonly direction: Direction;
  readonly tier: Tier;
  readonly rules: number;
}

interface PodNeeds {
  readonly pod: PolicyPod;
  readonly lists: readonly ListNeed[];
}

/** The pods of one namespace on one node. */
interface Room {
  readonly needs: Map<PodKey, PodNeeds>;
  /** The pods for whose lists there is no room. */
  refused: ReadonlySet<PodKey>;
}

/** Pods whose lists there is no room for. */
export interface RefusedPods {
  readonly namespace: string;
  readonly pods: readonly PodKey[];
  /** All pods of the namespace on the node, and the rules that they need together. */
  readonly ofPods: number;
  readonly rules: number;
}

/**
 * Decides which pods get their lists: the oldest ones, as long as there is room. The order of events
 * makes no difference, and a new pod never takes the room of one that has its rules.
 */
export class RuleRooms {
  readonly #rooms = new Map<string, Room>();
  readonly #places = new Map<PodKey, string>();
  readonly #changed = new Set<string>();

  /** Whether there is no room for the rules of a pod. */
  isRefused(key: PodKey): boolean {
    return this.#rooms.get(this.#places.get(key) ?? "")?.refused.has(key) ?? false;
  }

  /** Forgets a pod. */
  delete(key: PodKey): void {
    const before = this.#places.get(key);
    if (before !== undefined) {
      this.#places.delete(key);
      this.#rooms.get(before)?.needs.delete(key);
      this.#changed.add(before);
    }
  }

  /** Takes what a pod needs now. A list that is too large by itself is left empty in any case. */
  set(pod: PolicyPod, needs: readonly ListNeed[]): void {
    const { key, nodeName, namespace } = pod;
    this.delete(key);
    const lists = needs.filter(({ rules }) => rules <= MOST_RULES);
    if (lists.length === 0) return;
    const place = `${nodeName ?? ""} ${namespace}`;
    this.#places.set(key, place);
    this.#rooms.getOrInsertComputed(place, () => ({ needs: new Map(), refused: new Set() }))
      .needs.set(key, { pod, lists });
    this.#changed.add(place);
  }

  /** Decides for what changed. Returns the pods that are refused now and were not, or the reverse. */
  decide(): { readonly moved: ReadonlySet<PodKey>; readonly refused: readonly RefusedPods[] } {
    const moved = new Set<PodKey>();
    const refused: RefusedPods[] = [];
    for (const place of this.#changed) {
      const room = this.#rooms.get(place)!;
      const before = room.refused;
      const rules = rulesOf(room.needs.values());
      room.refused = rules > MOST_NODE_RULES ? newestBeyond(room.needs) : new Set();
      const changed = before.symmetricDifference(room.refused);
      for (const key of changed) moved.add(key);
      const pods = [...room.refused];
      const namespace = place.slice(place.indexOf(" ") + 1);
      if (changed.size > 0 && pods.length > 0) {
        refused.push({ namespace, pods, ofPods: room.needs.size, rules });
      }
      if (room.needs.size === 0) this.#rooms.delete(place);
    }
    this.#changed.clear();
    return { moved, refused };
  }
}

function rulesOf(needs: Iterable<PodNeeds>): number {
  const rulesByKey = new Map<string, number>();
  for (const { lists } of needs) for (const { key, rules } of lists) rulesByKey.set(key, rules);
  return rulesByKey.values().reduce((sum, rules) => sum + rules, 0);
}

function newestBeyond(needs: Room["needs"]): ReadonlySet<PodKey> {
  const refused = new Set<PodKey>();
  const written = new Set<string>();
  let room = MOST_NODE_RULES;
  const oldestFirst = Array.from(needs, ([key, { pod, lists }]) => {
    return { key, lists, age: `${pod.object.metadata.creationTimestamp ?? ""} ${key}` };
  }).sort((left, right) => left.age < right.age ? -1 : 1);
  for (const { key, lists } of oldestFirst) {
    const added = lists.filter((list) => !written.has(list.key));
    const rules = added.reduce((sum, list) => sum + list.rules, 0);
    if (rules > room) {
      refused.add(key);
      continue;
    }
    room -= rules;
    for (const list of added) written.add(list.key);
  }
  return refused;
}
