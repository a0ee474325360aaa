/**
 * Random histories: what events make of a plan against planning from scratch, and connections against
 * a second opinion. A failure prints its seed.
 */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import ipaddr from "ipaddr.js";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import { ConnectionJudge, type JudgeUpdate, piecesOf } from "../../lib/policy/connection_judge.ts";
import { judgeConnection, viewCluster, viewPlan } from "../../lib/policy/judge_connection.ts";
import {
  memberKey,
  type PeerMember,
  type PolicyPlan,
  type PolicyPlanChanges,
  type RuleList,
} from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import {
  ADDRESSES,
  type ClusterEvent,
  clusterHistory,
  handleEvent,
  OUTSIDE,
  PORTS,
  PROTOCOLS,
  type RandomNode,
  smallUpdates,
} from "./random_cluster.ts";
import type {
  ClusterNetworkPolicy,
  ClusterPolicyPeer,
  ClusterPolicyProtocol,
  ClusterPolicyRule,
} from "../../lib/api/kinds/cluster_network_policy.ts";
import type { Namespace } from "../../lib/api/kinds/namespace.ts";
import type {
  LabelSelectorSpec,
  NetworkPolicy,
  NetworkPolicyPeer,
  NetworkPolicyPort,
} from "../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../lib/api/kinds/pod.ts";

/** The objects of a cluster. */
interface Cluster {
  readonly pods: readonly Pod[];
  readonly namespaces: readonly Namespace[];
  readonly policies: readonly NetworkPolicy[];
  readonly clusterPolicies: readonly ClusterNetworkPolicy[];
  readonly nodes: readonly RandomNode[];
}

/** A connection between two addresses. */
interface OracleConnection {
  readonly from: string;
  readonly to: string;
  readonly protocol?: string;
  readonly port?: number;
}

type Labels = Readonly<Record<string, string>>;
type Direction = "Ingress" | "Egress";

/** Whether the pod with the address of one end consents; `true` for an address of no pod. */
function consents(
  cluster: Cluster,
  direction: Direction,
  connection: OracleConnection,
): boolean {
  const own = podWith(cluster, direction === "Ingress" ? connection.to : connection.from);
  const other = direction === "Ingress" ? connection.from : connection.to;
  if (own === undefined || own === podWith(cluster, other)) return true;
  const decided = decisionOf(cluster, "Admin", direction, connection);
  if (decided !== undefined) return decided;
  const isolating = cluster.policies.filter((policy) =>
    policy.metadata.namespace === own.metadata.namespace &&
    selects(policy.spec.podSelector ?? {}, own.metadata.labels ?? {}, false) &&
    typesOf(policy).includes(direction)
  );
  if (isolating.length === 0) {
    return decisionOf(cluster, "Baseline", direction, connection) ?? true;
  }
  for (const { metadata, spec } of isolating) {
    const rules = direction === "Ingress"
      ? (spec.ingress ?? []).map(({ from, ports }) => ({ peers: from, ports }))
      : (spec.egress ?? []).map(({ to, ports }) => ({ peers: to, ports }));
    for (const { peers = [], ports = [] } of rules) {
      // A name has to stand for the port in the pod that is the peer.
      for (const pod of [podWith(cluster, other), undefined]) {
        const isPeer = peers.length === 0 ||
          peers.some((peer) =>
            isOf(cluster, { peer, pod, address: other, namespace: metadata.namespace! })
          );
        const destination = direction === "Ingress" ? own : pod;
        const isPort = ports.length === 0 ||
          ports.some((port) => isPortOf(port, connection, destination));
        if (isPeer && isPort) return true;
      }
    }
  }
  return false;
}

/** Whether the rules of a tier allow or deny a connection; `undefined` = they leave it to the next one. */
function decisionOf(
  cluster: Cluster,
  tier: string,
  direction: Direction,
  connection: OracleConnection,
): boolean | undefined {
  const address = direction === "Ingress" ? connection.from : connection.to;
  const own = podWith(cluster, direction === "Ingress" ? connection.to : connection.from)!;
  const other = podWith(cluster, address);
  const ordered = cluster.clusterPolicies.filter(({ spec }) => spec.tier === tier)
    .toSorted((left, right) =>
      left.spec.priority! - right.spec.priority! ||
      (left.metadata.name < right.metadata.name ? -1 : 1)
    );
  for (const { spec } of ordered) {
    if (!isClusterPeer(cluster, spec.subject!, own)) continue;
    const rules = (direction === "Ingress" ? spec.ingress : spec.egress) ?? [];
    for (const { action, protocols, ...sides } of rules as readonly ClusterPolicyRule[]) {
      const peers = sides.from ?? sides.to ?? [];
      const named = direction === "Ingress" ? own : other;
      // A pod matches as itself or as an address of a network; names of ports are those of pods.
      const matches = peers.some((peer) => {
        const isPod = other !== undefined && isClusterPeer(cluster, peer, other);
        if (!isPod && !isAddressPeer(cluster, peer, address)) return false;
        return protocols?.some((each) =>
          isProtocolOf(each, connection, peer.nodes ? named === own ? own : undefined : named)
        ) ?? true;
      });
      if (!matches) continue;
      if (action === "Pass") return undefined;
      return action === "Accept";
    }
  }
  return undefined;
}

function isClusterPeer(
  { namespaces: all }: Cluster,
  { namespaces, pods }: Pick<ClusterPolicyPeer, "namespaces" | "pods">,
  { metadata }: Pod,
): boolean {
  if (!namespaces && !pods) return false;
  const known = all.find((each) => each.metadata.name === metadata.namespace);
  const name = { "kubernetes.io/metadata.name": metadata.namespace! };
  const labels = { ...known?.metadata.labels, ...name };
  return selects((namespaces ?? pods?.namespaceSelector)!, labels, known === undefined) &&
    selects(pods?.podSelector ?? {}, metadata.labels ?? {}, false);
}

function isAddressPeer(
  { nodes: all }: Cluster,
  { networks = [], nodes }: ClusterPolicyPeer,
  address: string,
): boolean {
  return networks.some((cidr) => isIn(cidr, address)) || nodes !== undefined &&
      all.some(({ metadata, status }) =>
        status.addresses.some((each) => each.address === address) &&
        selects(nodes, metadata.labels, false)
      );
}

function isProtocolOf(
  { tcp, udp, sctp, destinationNamedPort }: ClusterPolicyProtocol,
  connection: OracleConnection,
  named: Pod | undefined,
): boolean {
  if (destinationNamedPort) {
    return ["TCP", "UDP", "SCTP"].some((protocol) =>
      isPortOf({ protocol, port: destinationNamedPort }, connection, named)
    );
  }
  const [protocol, { destinationPort } = {}] = tcp
    ? ["TCP", tcp] as const
    : udp
    ? ["UDP", udp] as const
    : ["SCTP", sctp] as const;
  const { number, range } = destinationPort ?? {};
  const [port, endPort] = [range?.start ?? number, range?.end ?? number];
  return isPortOf({ protocol, ...(port && endPort && { port, endPort }) }, connection, named);
}

function typesOf({ spec: { policyTypes = [], egress = [] } }: NetworkPolicy): readonly string[] {
  if (policyTypes.length > 0) return policyTypes;
  return egress.length > 0 ? ["Ingress", "Egress"] : ["Ingress"];
}

/** The pod of an address: not a deleted one, then the one created last, and then the last by name. */
function podWith({ pods }: Cluster, address: string): Pod | undefined {
  const rank = ({ metadata }: Pod) =>
    `${metadata.deletionTimestamp === undefined} ${metadata.creationTimestamp ?? ""} ` +
    `${metadata.namespace}/${metadata.name}`;
  return pods.filter((pod) =>
    !pod.spec.hostNetwork && pod.status.phase !== "Succeeded" && pod.status.phase !== "Failed" &&
    !hasEnded(pod) && (pod.status.podIPs ?? []).some(({ ip }) => ip === address)
  ).toSorted((left, right) => rank(left) < rank(right) ? 1 : -1)[0];
}

/** Whether a deleted pod has no container left that runs, or may run again. */
function hasEnded({ metadata, spec, status }: Pod): boolean {
  if (metadata.deletionTimestamp === undefined) return false;
  const { containerStatuses = [], initContainerStatuses = [] } = status;
  if (containerStatuses.length < Math.max(1, spec.containers.length)) return false;
  return [...containerStatuses, ...initContainerStatuses].every(({ state }) => state?.terminated);
}

function isOf(
  cluster: Cluster,
  { peer, pod, address, namespace }: {
    readonly peer: NetworkPolicyPeer;
    readonly pod: Pod | undefined;
    readonly address: string;
    readonly namespace: string;
  },
): boolean {
  const { podSelector, namespaceSelector, ipBlock } = peer;
  if (ipBlock) {
    return !podSelector && !namespaceSelector && isIn(ipBlock.cidr!, address) &&
      !(ipBlock.except ?? []).some((except) => isIn(except, address));
  }
  if (pod === undefined || (!podSelector && !namespaceSelector)) return false;
  const { metadata } = pod;
  const own = cluster.namespaces.find((each) => each.metadata.name === metadata.namespace);
  const name = { "kubernetes.io/metadata.name": metadata.namespace! };
  const labels = { ...own?.metadata.labels, ...name };
  const isInNamespace = namespaceSelector
    ? selects(namespaceSelector, labels, own === undefined)
    : metadata.namespace === namespace;
  return isInNamespace &&
    (podSelector === undefined || selects(podSelector, metadata.labels ?? {}, false));
}

function isIn(cidr: string, address: string): boolean {
  const [network, length] = ipaddr.parseCIDR(cidr);
  const parsed = ipaddr.parse(address);
  return parsed.kind() === network.kind() && parsed.match(network, length);
}

function isPortOf(
  { protocol = "TCP", port, endPort }: NetworkPolicyPort,
  connection: OracleConnection,
  destination: Pod | undefined,
): boolean {
  if (connection.protocol !== protocol || connection.port === undefined) return false;
  if (port === undefined) return true;
  if (typeof port === "number") {
    return port <= connection.port && connection.port <= (endPort ?? port);
  }
  if (destination === undefined) return false;
  const { containers, initContainers = [] } = destination.spec;
  const sidecars = initContainers.filter((each) => each.restartPolicy === "Always");
  const named = [...containers, ...sidecars].flatMap((each) => each.ports ?? []).find((each) =>
    each.name === port && (each.protocol ?? "TCP") === protocol
  );
  return named?.containerPort === connection.port;
}

/** Of a namespace that is not known, absence of a label proves nothing. */
function selects(
  { matchLabels = {}, matchExpressions = [] }: LabelSelectorSpec,
  labels: Labels,
  isPartial: boolean,
): boolean {
  const valueOf = (key: string) => new Map(Object.entries(labels)).get(key);
  for (const [key, value] of Object.entries(matchLabels)) {
    if (valueOf(key) !== value) return false;
  }
  for (const { key, operator, values = [] } of matchExpressions) {
    const value = valueOf(key!);
    if (value === undefined && isPartial) return false;
    if (operator === "In" && (value === undefined || !values.includes(value))) return false;
    if (operator === "NotIn" && value !== undefined && values.includes(value)) return false;
    if (operator === "Exists" && value === undefined) return false;
    if (operator === "DoesNotExist" && value !== undefined) return false;
  }
  return true;
}

const RUNS = { numRuns: 500 };

/** The last event of each object. */
function lastEvents(history: readonly ClusterEvent[]): readonly ClusterEvent[] {
  return [...new Map(history.map((event) => [`${event.kind} ${event.key}`, event])).values()];
}

function clusterOf(history: readonly ClusterEvent[]): Cluster {
  const last = lastEvents(history);
  return {
    pods: last.flatMap((each) => each.kind === "pod" && each.object ? [each.object] : []),
    namespaces: last.flatMap((each) =>
      each.kind === "namespace" && each.object ? [each.object] : []
    ),
    policies: last.flatMap((each) =>
      each.kind === "policy" && each.object ? [each.meaning ?? each.object] : []
    ),
    clusterPolicies: last.flatMap((each) =>
      each.kind === "cluster policy" && each.object ? [each.object] : []
    ),
    nodes: last.flatMap((each) => each.kind === "node" && each.object ? [each.object] : []),
  };
}

function plannerOf(
  state: PolicyState,
  family: IpFamily,
  more: Pick<PolicyPlanOptions, "includesRemotePods"> = {},
): PolicyPlanner {
  const deny = { action: "reject" } as const;
  const options = { family, nodeName: "n1", deny, closedRanges: [], podLinks: [] };
  return new PolicyPlanner(state, { ...options, ...more });
}

/** A plan as plain sorted values, which later changes do not reach. */
function snapshot({ pods, lists, peers }: PolicyPlan) {
  return {
    pods: new Map([...pods].sort()),
    lists: new Map([...lists].sort()),
    peers: new Map(
      [...peers].sort().map(([id, { kind, members }]) =>
        [id, { kind, members: new Set([...members.keys()].sort()) }] as const
      ),
    ),
  };
}

type Snapshot = ReturnType<typeof snapshot>;

/** Applies changes as a data plane does: reads only the named parts from the new plan. */
function applyChanges(held: Snapshot, changes: PolicyPlanChanges, plan: Snapshot): Snapshot {
  if (changes.full) return plan;
  const replace = <K, V>(into: Map<K, V>, from: ReadonlyMap<K, V>, keys: ReadonlySet<K>) => {
    for (const key of keys) {
      const value = from.get(key);
      if (value === undefined) into.delete(key);
      else into.set(key, value);
    }
  };
  replace(held.pods, plan.pods, changes.pods);
  replace(held.lists, plan.lists, changes.lists);
  replace(held.peers, plan.peers, changes.peers);
  const keyOf = (member: PeerMember) => memberKey(member);
  for (const [id, { added, removed }] of changes.members) {
    const members = new Set(held.peers.get(id)!.members as ReadonlySet<string>);
    for (const member of removed) assert(members.delete(keyOf(member)), `${id} lacks ${member}`);
    for (const member of added) {
      assert(!members.has(keyOf(member)), `${id} has ${member}`);
      members.add(keyOf(member));
    }
    const { kind } = held.peers.get(id)!;
    held.peers.set(id, { kind, members: members as never });
  }
  return {
    pods: new Map([...held.pods].sort()),
    lists: new Map([...held.lists].sort()),
    peers: new Map(
      [...held.peers].sort().map(([id, { kind, members }]) => [
        id,
        { kind, members: new Set([...members].sort()) as never },
      ]),
    ),
  };
}

const TIERS = ["Admin", "NetworkPolicy", "Baseline"];

/** Checks the guarantees in the docstrings of a plan. */
function checkPromises({ pods, lists, peers }: PolicyPlan): void {
  const [usedLists, usedPeers] = [new Set<string>(), new Set<string>()];
  const addresses = [...pods.values()].flatMap((pod) => pod.addresses);
  assertEquals(new Set(addresses).size, addresses.length);
  for (const pod of pods.values()) {
    assert(pod.addresses.length > 0);
    for (const direction of ["ingress", "egress"] as const) {
      const tiers: string[] = [];
      for (let id = pod[direction]; id !== undefined;) {
        usedLists.add(id);
        const list: RuleList = lists.get(id)!;
        assertEquals(list.direction, direction);
        tiers.push(list.tier);
        id = list.next;
      }
      assertEquals(new Set(tiers).size, tiers.length);
      assertEquals(tiers, TIERS.filter((tier) => tiers.includes(tier)));
    }
  }
  for (const { tier, policies, rules, next } of lists.values()) {
    assert(policies.length > 0);
    assert(tier === "Admin" || next === undefined);
    if (tier === "NetworkPolicy") assertEquals(policies, policies.toSorted());
    for (const { peers: ids, ports } of rules) {
      assert(ids?.length !== 0 && ports?.length !== 0);
      for (const id of ids ?? []) {
        usedPeers.add(id);
        assert(ports === undefined || peers.get(id)?.kind !== "pod-ports");
      }
      for (const [index, { protocol, from, to }] of (ports ?? []).entries()) {
        const next = ports![index + 1];
        assert(from <= to && (next?.protocol !== protocol || to + 1 < next.from));
      }
    }
  }
  assertEquals(new Set<string>(lists.keys()), usedLists);
  assertEquals(new Set<string>(peers.keys()), usedPeers);
}

Deno.test("PolicyPlanner gives the result of a plan from scratch after any history, in any order", () => {
  fc.assert(
    fc.property(clusterHistory, fc.constantFrom(...IP_FAMILIES), (history, family) => {
      const state = new PolicyState();
      const planner = plannerOf(state, family);
      for (const [index, event] of history.entries()) {
        handleEvent(state, event);
        if (index % 3 === 0) planner.update();
      }
      planner.update();
      checkPromises(planner.plan);
      const last = lastEvents(history).filter(({ object }) => object !== undefined);
      for (const order of [last, last.toReversed()]) {
        const scratch = new PolicyState();
        for (const event of order) handleEvent(scratch, event);
        const planned = plannerOf(scratch, family);
        planned.update();
        assertEquals(snapshot(planner.plan), snapshot(planned.plan));
      }
    }),
    RUNS,
  );
});

Deno.test("PolicyPlanner's changes turn the plan of the last sync into the new one, failed syncs included", () => {
  fc.assert(
    fc.property(
      clusterHistory,
      fc.constantFrom(...IP_FAMILIES),
      fc.array(fc.constantFrom("no sync", "sync", "failed sync"), { minLength: 40, maxLength: 40 }),
      (history, family, outcomes) => {
        const state = new PolicyState();
        const planner = plannerOf(state, family);
        let held = applyChanges(
          snapshot(planner.plan),
          planner.update(),
          snapshot(planner.plan),
        );
        for (const [index, event] of history.entries()) {
          const changes = outcomes[index] === "failed sync" ? planner.update() : undefined;
          handleEvent(state, event);
          if (changes) planner.forget();
          if (outcomes[index] !== "sync") continue;
          held = applyChanges(held, planner.update(), snapshot(planner.plan));
          assertEquals(held, snapshot(planner.plan));
        }
      },
    ),
    RUNS,
  );
});

/** Has a judge follow another one in small pieces, as in another thread. */
function followInPieces(judge: ConnectionJudge, update: JudgeUpdate): void {
  for (const piece of piecesOf(update, 3)) {
    for (const _ of judge.followInSteps(structuredClone(piece)));
  }
}

Deno.test("ConnectionJudge and its followers judge by the plan that it took last, with pods of every node", () => {
  fc.assert(
    fc.property(clusterHistory, fc.constantFrom(...IP_FAMILIES), (history, family) => {
      const state = new PolicyState();
      const planner = plannerOf(state, family, { includesRemotePods: true });
      const [judge, follower] = [new ConnectionJudge(), new ConnectionJudge()];
      judge.relay = {
        serves: () => true,
        follow: (update) => Promise.resolve(followInPieces(follower, update)),
        recheck: () => Promise.resolve(0),
      };
      const own = ADDRESSES.map(parseIpAddress).filter((each) => ipFamilyOf(each) === family);
      const transport = { protocol: parseProtocol("TCP"), port: parsePort(PORTS[0]!) };
      for (const [index, event] of history.entries()) {
        handleEvent(state, event);
        if (index % 3 !== 0) continue;
        const changes = planner.update();
        for (const _ of judge.takeInSteps(planner.plan, changes));
        void judge.pass(planner.plan, changes);
        const late = new ConnectionJudge();
        followInPieces(late, judge.snapshot());
        const view = viewCluster(state, family);
        for (const { key, isRemote = false } of planner.plan.pods.values()) {
          assertEquals(isRemote, state.pods.get(key)?.nodeName !== "n1");
        }
        for (const from of own) {
          for (const to of own) {
            const connection = { from, to, transport };
            const expected = judgeConnection(view, connection);
            for (const each of [judge, follower, late]) {
              assertEquals(each.judge(connection), expected);
            }
          }
        }
      }
    }),
    RUNS,
  );
});

Deno.test("judgeConnection() agrees with a second opinion, on the plan and in the cluster", () => {
  let compared = 0;
  fc.assert(
    fc.property(clusterHistory, fc.constantFrom(...IP_FAMILIES), (history, family) => {
      const state = new PolicyState();
      const planner = plannerOf(state, family);
      for (const event of history) handleEvent(state, event);
      planner.update();
      const cluster = clusterOf(history);
      const views = { plan: viewPlan(planner.plan), cluster: viewCluster(state, family) };
      const addresses = [...ADDRESSES, OUTSIDE[family]].map(parseIpAddress)
        .filter((address) => ipFamilyOf(address) === family);
      const transports = [
        {},
        ...PROTOCOLS.flatMap((protocol) => PORTS.map((port) => ({ protocol, port }))),
      ];
      const isSharedByNodes = (address: IpAddress) =>
        new Set([...state.podsWith(address)].map(({ nodeName }) => nodeName)).size > 1;
      for (const from of addresses) {
        for (const to of addresses) {
          for (const transport of transports) {
            const { protocol, port } = { protocol: undefined, port: undefined, ...transport };
            const connection = {
              from,
              to,
              ...(port !== undefined && {
                transport: { protocol: parseProtocol(protocol), port: parsePort(port) },
              }),
            };
            const expected = {
              ingress: consents(cluster, "Ingress", { from, to, ...transport }),
              egress: consents(cluster, "Egress", { from, to, ...transport }),
            };
            const inPlan = judgeConnection(views.plan, connection);
            const inCluster = judgeConnection(views.cluster, connection);
            const text = JSON.stringify(connection);
            for (const end of ["ingress", "egress"] as const) {
              const isAllowed = inCluster[end].kind !== "denied";
              assertEquals(isAllowed, expected[end], `${end} ${text}`);
              // The plan knows pods of this node only, also of an address that two nodes claim.
              const isElsewhere = isSharedByNodes(from) || isSharedByNodes(to);
              if (inPlan[end].kind === "unknown" || isElsewhere) continue;
              assertEquals(inPlan[end], inCluster[end], `plan ${end} ${text}`);
              compared++;
            }
          }
        }
      }
    }),
    RUNS,
  );
  assert(compared > 5_000, `compared only ${compared} verdicts of plans`);
});

Deno.test("PolicyPlanner agrees with a second opinion after each update of several events, in a small world", () => {
  fc.assert(
    fc.property(smallUpdates, (updates) => {
      const state = new PolicyState();
      const planner = plannerOf(state, "IPv4", { includesRemotePods: true });
      const ofNode = plannerOf(state, "IPv4");
      const history: ClusterEvent[] = [];
      let held = snapshot(planner.plan);
      for (const events of updates) {
        for (const event of events) handleEvent(state, event);
        history.push(...events);
        // The node judges an address by its own pods, whatever other nodes say of it.
        const fresh = new PolicyState();
        for (const event of lastEvents(history).toReversed()) handleEvent(fresh, event);
        const fromScratch = plannerOf(fresh, "IPv4");
        ofNode.update();
        fromScratch.update();
        assertEquals(snapshot(ofNode.plan), snapshot(fromScratch.plan));
        held = applyChanges(held, planner.update(), snapshot(planner.plan));
        assertEquals(held, snapshot(planner.plan));
        const [cluster, view] = [clusterOf(history), viewPlan(planner.plan)];
        const [one, other] = ADDRESSES.map(parseIpAddress) as [IpAddress, IpAddress];
        for (const [from, to] of [[one, other], [other, one]] as const) {
          for (const port of PORTS) {
            const transport = { protocol: parseProtocol("TCP"), port: parsePort(port) };
            const { ingress } = judgeConnection(view, { from, to, transport });
            const expected = consents(cluster, "Ingress", { from, to, ...transport });
            assertEquals(ingress.kind !== "denied", expected, `${from} -> ${to}:${port}`);
          }
        }
      }
    }),
    { numRuns: 3_000 },
  );
});
