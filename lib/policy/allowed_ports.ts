/**
 * The ports on which a pod may receive or send, for a kind of peer.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { BlockMatcher, type NestedBlocks } from "../net/nested_blocks.ts";
import { ClusterLists } from "./cluster_lists.ts";
import {
  type BlocksSource,
  matchesQuery,
  membersOf,
  type PeerSource,
  type PodSource,
} from "./peer_source.ts";
import type { Direction, PeerSetId, PolicyKey, PolicyRule, PortRange } from "./policy_plan.ts";
import type { PolicyPod } from "./policy_pod.ts";
import { mergePortRanges } from "./policy_ports.ts";
import type { PolicyState } from "./policy_state.ts";

/** Ports; `all` includes what has no ports, such as an ICMP echo. */
export type AllowedPorts = "all" | readonly PortRange[];

/** The other end of connections. */
export type Peer =
  | { readonly kind: "pod"; readonly pod: PolicyPod; readonly blocks: ReadonlySet<PeerSetId> }
  /** Addresses of no pod, in blocks that a rule names. */
  | { readonly kind: "blocks"; readonly members: NestedBlocks }
  /** An address of no pod, and in no block that a rule names. */
  | { readonly kind: "outside" };

/** The rule that allows some ports. */
export interface Grant {
  readonly policy: PolicyKey;
  /** Place of the rule in `spec.ingress` or `spec.egress`. */
  readonly index: number;
  readonly ports: AllowedPorts;
}

/** The rules of a pod in one direction. */
export interface PodRules {
  /** Every policy that isolates the pod. */
  readonly policies: readonly PolicyKey[];
  readonly rules: readonly PolicyRule[];
  readonly sources: ReadonlyMap<PeerSetId, PeerSource>;
}

/** Finds the rules of any pod of the cluster, and what they allow. Good until the state changes. */
export class RuleBook {
  readonly #state: PolicyState;
  readonly #family: IpFamily;
  readonly #lists: ClusterLists;

  constructor(state: PolicyState, family: IpFamily) {
    this.#state = state;
    this.#family = family;
    this.#lists = new ClusterLists(state, family);
  }

  /** `undefined` = not isolated. */
  rulesOf(pod: PolicyPod, direction: Direction): PodRules | undefined {
    const made = this.#lists.listOf(pod, direction);
    if (made === undefined) return undefined;
    const { list, sources } = made;
    return {
      policies: list.policies,
      rules: list.rules,
      sources: new Map(sources.map((source) => [source.id, source])),
    };
  }

  /** The rules that allow a peer something. */
  grantsOf({ rules, sources }: PodRules, peer: Peer): readonly Grant[] {
    return rules.flatMap((rule) => {
      const found = rule.peers?.flatMap((id) => sources.get(id) ?? []);
      const ports = this.#portsOf({ ports: rule.ports, sources: found }, peer);
      return ports === undefined ? [] : [{ policy: rule.policy, index: rule.index, ports }];
    });
  }

  /** `undefined` = the rule does not match the peer. */
  #portsOf(
    { ports = "all", sources }: {
      readonly ports: AllowedPorts | undefined;
      readonly sources: readonly PeerSource[] | undefined;
    },
    peer: Peer,
  ): AllowedPorts | undefined {
    if (sources === undefined) return ports;
    const named: PortRange[] = [];
    for (const source of sources) {
      if (source.kind === "blocks") {
        if (isIn(source, peer)) return ports;
      } else if (peer.kind === "pod" && this.#isOf(source, peer.pod)) {
        if (source.kind === "pods") return ports;
        for (const member of membersOf(source, { pod: peer.pod, family: this.#family })) {
          if (typeof member === "string") continue;
          named.push({ protocol: member.protocol, from: member.port, to: member.port });
        }
      }
    }
    return named.length > 0 ? mergePortRanges(named) : undefined;
  }

  #isOf({ query }: PodSource, pod: PolicyPod): boolean {
    return matchesQuery(query, { pod, namespace: this.#state.namespaceLabels(pod.namespace) });
  }
}

/** Whether all addresses of a peer are in these blocks. */
function isIn({ id, members }: BlocksSource, peer: Peer): boolean {
  if (peer.kind !== "blocks") return peer.kind === "pod" && peer.blocks.has(id);
  return BlockMatcher.of(members).containsAll(BlockMatcher.of(peer.members));
}

/** Returns the ports that grants allow together; `undefined` = the pod is not isolated. */
export function portsOfGrants(grants: readonly Grant[] | undefined): AllowedPorts {
  if (grants === undefined || grants.some(({ ports }) => ports === "all")) return "all";
  return mergePortRanges(grants.flatMap(({ ports }) => ports === "all" ? [] : ports));
}

/** The ports that both allow. */
export function commonPorts(left: AllowedPorts, right: AllowedPorts): AllowedPorts {
  if (left === "all") return right;
  if (right === "all") return left;
  return left.flatMap((one) =>
    right.flatMap((other) => {
      const from = one.from > other.from ? one.from : other.from;
      const to = one.to < other.to ? one.to : other.to;
      const isCommon = one.protocol === other.protocol && from <= to;
      return isCommon ? [{ protocol: one.protocol, from, to }] : [];
    })
  );
}

/** E.g. `all`, `none` or `TCP 80,8000-8999 UDP 53`. */
export function portsText(ports: AllowedPorts): string {
  if (ports === "all") return "all";
  if (ports.length === 0) return "none";
  return [...Map.groupBy(ports, ({ protocol }) => protocol)].map(([protocol, ranges]) => {
    const texts = ranges.map(({ from, to }) => from === to ? `${from}` : `${from}-${to}`);
    return texts[0] === "1-65535" ? protocol : `${protocol} ${texts.join(",")}`;
  }).join(" ");
}
