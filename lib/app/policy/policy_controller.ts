import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import {
  CLUSTER_NETWORK_POLICY,
  type ClusterNetworkPolicy,
} from "../../api/kinds/cluster_network_policy.ts";
import { NAMESPACE, type Namespace } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY, type NetworkPolicy } from "../../api/kinds/network_policy.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { POD, type Pod } from "../../api/kinds/pod.ts";
import { type KubeProxyConfiguration, syncPeriodsOf } from "../../config/configuration.ts";
import type {
  Controller,
  ControllerKind,
  ControllerStatus,
  LoopActivity,
} from "../../engine/controller.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { countText } from "../../log/count_text.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { OneAtATime } from "../../net/one_at_a_time.ts";
import { changeHandler, type Informer, type InformerHandler } from "../../kube/informer.ts";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  tryParseIpAddress,
} from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { DeniedPackets, PodKey, PolicyKey, Tier } from "../../policy/policy_plan.ts";
import { equalPriorities } from "../../policy/cluster_policy.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { ControllerDefinition, ControllerParts } from "../controllers.ts";
import type { Dependencies } from "../dependencies.ts";
import { takeOverPolicies } from "../handover.ts";
import { ControllerSource } from "../run/controller_source.ts";
import { ALL_NODES, serviceSubscriptions } from "../service/service_subscriptions.ts";
import type { PolicyBackend, PolicyTool } from "./policy_backend.ts";
import { PolicyFamily } from "./policy_family.ts";
import {
  choosePolicyTool,
  podRangesOf,
  POLICY_ACCESS,
  POLICY_KINDS,
  policySelection,
  policySettings,
} from "./policy_settings.ts";
import type { ObjectChange } from "../change_listener.ts";

/** The time for which the first sync waits for the Node, which only `start: closed` needs. */
const NODE_WAIT_MS = 5_000;
/** The time for which status and metrics wait for counters: nft reads all rules of the node for them. */
const DENIED_WAIT_MS = 500;

/** Enforces policies for the pods of this node. */
export class NetworkPolicyController implements Controller {
  readonly name = "network-policy";
  readonly kinds: readonly ControllerKind[];
  readonly #parts: ControllerParts;
  /** The cluster as policies see it, and the turns of everybody who changes it or reads plans. */
  readonly #cluster = { state: new PolicyState(), turns: new OneAtATime() };
  /** Follows an API server by itself; absent where the common source has the objects. */
  readonly #source: ControllerSource | undefined;
  #families: readonly PolicyFamily[] = [];
  #tool: PolicyTool | undefined;
  #node: Node | undefined;
  /** All Nodes, once a policy names nodes. */
  readonly #nodes: Pick<Informer<Node>, "values">;
  #addresses: readonly InterfaceAddress[] = [];
  #ownAddresses: ReadonlySet<IpAddress> = new Set();
  readonly #synced = new Set<IpFamily>();
  #denied: ReadonlyMap<IpFamily, DeniedPackets> = new Map();
  #readingDenied: Promise<void> | undefined;
  #tasks: TaskGroup | undefined;

  constructor(parts: ControllerParts) {
    const { configuration, nodeName } = parts;
    this.#parts = parts;
    const isShared = configuration.relay.manifests.length > 0;
    const informers = isShared ? parts.informers : new InformerSet();
    this.kinds = [
      ...POLICY_KINDS.map((spec) => ({ spec, informers })),
      { spec: NODE, waitMs: NODE_WAIT_MS },
      // Those that a policy names: without them, their sets of the kernel would be emptied.
      { spec: NODE, informers },
    ];
    if (!isShared) {
      const needed = POLICY_ACCESS;
      const { kubeconfig } = configuration.proxy.networkPolicy;
      this.#source = new ControllerSource(parts, configuration, kubeconfig, informers, needed);
      parts.sources.push(this.#source);
    }
    const { endpointsFallback } = configuration.relay;
    const ownNode = serviceSubscriptions(nodeName, endpointsFallback).get(NODE);
    const { state } = this.#cluster;
    const follow = <T extends KubeObject>(
      spec: KindSpec<T>,
      kind: string,
      set: (key: string, current: T | undefined) => void,
    ) => {
      const handler = this.#handler<T>((previous, current) => {
        this.#seen({ kind, previous, current });
        set(objectKey(current ?? previous!), current);
      });
      return informers.subscribe(spec, policySelection(spec), handler);
    };
    follow<Pod>(POD, "Pod", (key, pod) => state.setPod(key as PodKey, pod));
    follow<Namespace>(NAMESPACE, "Namespace", (key, found) => state.setNamespace(key, found));
    follow<NetworkPolicy>(NETWORK_POLICY, "NetworkPolicy", (key, policy) => {
      state.setPolicy(key as PolicyKey, policy);
    });
    follow<ClusterNetworkPolicy>(CLUSTER_NETWORK_POLICY, "ClusterNetworkPolicy", (key, policy) => {
      state.setClusterPolicy(key as PolicyKey, policy);
    });
    this.#nodes = this.#followNodes(informers, isShared);
    const nodeHandler = this.#handler<Node>((previous, current) => this.#onNode(previous, current));
    parts.informers.subscribe(NODE, ownNode, nodeHandler);
  }

  /** Follows all Nodes once a policy names nodes: in large clusters, their changes are many. */
  #followNodes(informers: InformerSet, isShared: boolean): Pick<Informer<Node>, "values"> {
    const needed = Promise.withResolvers<void>();
    let isNeeded = isShared;
    const handler = this.#handler<Node>((previous, current) => {
      this.#cluster.state.setNode(objectKey(current ?? previous!), current);
    });
    const nodes = informers.subscribe(NODE, { ...ALL_NODES, after: needed.promise }, handler);
    informers.subscribe(CLUSTER_NETWORK_POLICY, policySelection(CLUSTER_NETWORK_POLICY), {
      ...changeHandler<ClusterNetworkPolicy>((_, current) => {
        isNeeded ||= current !== undefined && namesNodes(current);
        if (isNeeded) needed.resolve();
      }),
      onSynced: () => isNeeded || nodes.markSynced(),
    });
    return nodes;
  }

  get activity(): readonly LoopActivity[] {
    return this.#families.map(({ loop }) => loop.activity);
  }

  /** The cluster as policies see it. */
  get state(): PolicyState {
    return this.#cluster.state;
  }

  /** The Nodes that may be peers. */
  get nodes(): Iterable<Node> {
    return this.#nodes.values();
  }

  /** Empty until the start, and if no policy is enforced. */
  get families(): readonly PolicyFamily[] {
    return this.#families;
  }

  /** The tool that writes rules; `undefined` if none was chosen. */
  get tool(): PolicyTool | undefined {
    return this.#tool;
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { configuration: { proxy, mode } } = this.#parts;
    this.#tasks = tasks;
    const tool = this.#tool = await choosePolicyTool(
      this.#parts,
      proxy.networkPolicy.mode,
      mode,
      tasks.signal,
    );
    this.#families = this.#parts.configuration.families.map((family) =>
      new PolicyFamily(this.#parts, this.#cluster, tasks, {
        ...{ family, tool, settings: this.#settings(family) },
        isOwnNode: (address) => this.#isOwnNode(address),
        onSynced: () => this.#onSynced(family),
      })
    );
    this.#closeJudges();
    await Promise.all(this.#families.map(({ loop }) => loop.start()));
    const source = this.#source;
    if (source) tasks.run("policy source", (signal) => source.run(signal));
  }

  open(): void {
    for (const { loop } of this.#families) loop.open();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const before = this.#podLinks();
    this.#addresses = addresses;
    this.#ownAddresses = new Set(addresses.map(({ address }) => address));
    if (`${before}` !== `${this.#podLinks()}`) this.#applySettings();
  }

  onConfiguration(): void {
    this.#seen({ kind: "configuration" });
    this.#applySettings();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#families.map(({ loop }) => loop.stop()));
  }

  async drain(timeoutMs: number): Promise<void> {
    await Promise.all(this.#families.map(({ backend }) => backend?.drain(timeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { backend } of this.#families) await backend?.[Symbol.asyncDispose]();
  }

  async status({ brief }: { readonly brief: boolean }): Promise<ControllerStatus> {
    const families = this.#families.map((each) => each.loop.status(each.inspect().summary));
    const facts = [...this.#facts(), ...(brief ? [] : await this.#deniedFacts())];
    return { controller: this.name, families, facts };
  }

  async collectMetrics(): Promise<void> {
    const { metrics } = this.#parts;
    const denied = await this.#deniedPackets();
    metrics.setPolicyProblems({
      policy: this.#faultyPolicies(),
      pod: this.#families.reduce((sum, each) => sum + each.inspect().refused, 0),
    });
    const tiers = this.#policyCounts();
    const { NetworkPolicy: policies, ...ofCluster } = tiers;
    metrics.setClusterPolicies(ofCluster);
    for (const each of this.#families) {
      const { family } = each;
      metrics.setPolicies(family, { policies, ...each.inspect() });
      metrics.setDenied(family, denied.get(family) ?? {});
    }
  }

  /** Reads the counters. Returns those of the last reading if the tool is slow. */
  async #deniedPackets(): Promise<ReadonlyMap<IpFamily, DeniedPackets>> {
    const reading = this.#readingDenied ??= this.#readDenied();
    const patience = Promise.withResolvers<void>();
    const timer = this.#parts.clock.setTimer(DENIED_WAIT_MS, patience.resolve);
    await Promise.race([reading, patience.promise]);
    timer.cancel();
    return this.#denied;
  }

  /** Leaves out counters that cannot be read. A sync reports the reason. Never rejects. */
  async #readDenied(): Promise<void> {
    const found = new Map<IpFamily, DeniedPackets>();
    for (const { family, backend } of this.#families) {
      found.set(family, await backend?.deniedPackets().catch(() => ({})) ?? {});
    }
    this.#denied = found;
    this.#readingDenied = undefined;
  }

  #policyCounts(): Readonly<Record<Tier, number>> {
    const counts = { Admin: 0, NetworkPolicy: 0, Baseline: 0 };
    for (const { tier } of this.#cluster.state.policies.values()) counts[tier]++;
    return counts;
  }

  #faultyPolicies(): number {
    const { policies } = this.#cluster.state;
    return policies.values().filter(({ knownProblems }) => knownProblems.length > 0)
      .reduce((sum) => sum + 1, 0);
  }

  /** The facts, each in one line. */
  #facts(): ControllerStatus["facts"] {
    const { configuration: { mode }, current: { proxy: { networkPolicy } } } = this.#parts;
    const { pods, policies } = this.#cluster.state;
    const { NetworkPolicy, Admin, Baseline } = this.#policyCounts();
    const [families, tool] = [this.#families, this.#tool];
    const faults = this.#faultyPolicies();
    const unusable = faults > 0 ? `; ${faults} with parts that cannot be used` : "";
    const missing = "kube-relay doctor says what is missing";
    const rules = families.map((each) => {
      const { isolated: { ingress, egress }, refused, lists, sets, members } = each.inspect();
      if (lists === 0) return `${each.family}: no pod of this node is isolated`;
      const excess = refused > 0
        ? `; for ${countText(refused, "pod")} there are too many rules: nothing is allowed`
        : "";
      return `${each.family}: ${countText(ingress, "pod")} isolated for ingress, ${egress} for ` +
        `egress; ${countText(lists, "rule list")}, ${countText(sets, "set")} with ` +
        countText(members, "member") + excess;
    });
    const facts = [
      {
        name: "Policies",
        text: `${NetworkPolicy}, for ${countText(pods.size, "pod")} of the cluster${unusable}`,
      },
      ...(Admin + Baseline > 0
        ? [{ name: "Cluster", text: `${Admin} in tier Admin, ${Baseline} in tier Baseline` }]
        : []),
      ...equalPriorities(policies.values()).map((text) => ({ name: "Equal", text })),
      {
        name: "Tool",
        text: families.length === 0
          ? `none: no NetworkPolicy is enforced; ${missing}`
          : tool ?? `none: no rules are written; ${missing}`,
      },
      ...rules.map((text) => ({ name: "Rules", text })),
    ];
    if (MODE_TRAITS[mode].forwardsItself) {
      const isJudged = families.length > 0;
      const isCovered = isJudged && tool && families.every(({ loop }) => loop.isComplete);
      if (isJudged) {
        facts.push({
          name: "Relayed",
          text: "connections are judged by the address of the client",
        });
      }
      if (!isCovered) {
        facts.push({ name: "Limit", text: "direct pod-to-pod traffic is not covered" });
      }
    }
    if (networkPolicy.start === "closed" && podRangesOf(this.#node).length === 0) {
      const text = "open: the Node has no pod ranges that could be closed";
      facts.push({ name: "Start", text });
    }
    return facts;
  }

  /** Returns the counts of denied packets, in one line for each family. */
  async #deniedFacts(): Promise<ControllerStatus["facts"]> {
    return [...await this.#deniedPackets()].flatMap(([family, { ingress, egress }]) => {
      const texts = [
        ...(ingress === undefined ? [] : [`${countText(ingress, "packet")} to pods`]),
        ...(egress === undefined ? [] : [`${countText(egress, "packet")} from pods`]),
      ];
      return texts.length === 0 ? [] : [{ name: "Denied", text: `${family}: ${texts.join(", ")}` }];
    });
  }

  #onSynced(family: IpFamily): void {
    if (this.#synced.has(family)) return;
    this.#synced.add(family);
    if (this.#synced.size < this.#families.length) return;
    const tool = this.#tool;
    if (tool === undefined) return;
    this.#tasks?.run("policy handover", (signal) => this.#handOver(tool, signal));
  }

  /** Called after the own rules are written in every family: rules of other programs may be removed. */
  async #handOver(tool: PolicyTool, signal: AbortSignal): Promise<void> {
    const { configuration: { proxy, relay }, logger } = this.#parts;
    for (const [other, create] of backendsFor(this.#parts, proxy)) {
      if (other === tool) continue;
      if (signal.aborted) return;
      try {
        await using backend = create();
        const { removed, failed } = await backend.cleanup();
        for (const what of removed) {
          logger.info("Removed policy rules of another tool", { other, what });
        }
        for (const what of failed) {
          logger.verbose(1, "Cannot remove policy rules of another tool", { other, what });
        }
      } catch (error) {
        // A host often lacks the other tool.
        const reason = messageOf(error);
        logger.verbose(1, "Cannot look for policy rules of another tool", { other, reason });
      }
    }
    if (relay.takeover) await takeOverPolicies(this.#parts, signal);
  }

  /** Changes what planners read, once no plan is being made. */
  #whenStill(action: () => void): void {
    this.#cluster.turns.run(() => Promise.resolve(action())).catch((error) => {
      this.#parts.logger.error("Cannot take a change of what policies depend on", { error });
    });
  }

  #handler<T extends KubeObject>(
    take: (previous: T | undefined, current: T | undefined) => void,
  ): InformerHandler<T> {
    return changeHandler((previous, current) => this.#whenStill(() => take(previous, current)));
  }

  #seen(change: ObjectChange): void {
    for (const family of this.#families) family.seen(change);
  }

  #onNode(previous: Node | undefined, current: Node | undefined): void {
    // While the Node is deleted, its last known state is used.
    if (current === undefined) return;
    const before = podRangesOf(this.#node);
    this.#node = current;
    if (`${before}` === `${podRangesOf(current)}`) return;
    this.#seen({ kind: "Node", previous, current });
    this.#applySettings();
  }

  #applySettings(): void {
    this.#whenStill(() => {
      for (const family of this.#families) family.setOptions(this.#settings(family.family));
    });
    this.#closeJudges();
  }

  /** Until there is a plan, relayed connections are judged by the closed ranges alone. */
  #closeJudges(): void {
    for (const [family, judge] of this.#parts.judges) {
      judge.close(this.#settings(family).closedRanges);
    }
  }

  #settings(family: IpFamily) {
    const { networkPolicy } = this.#parts.current.proxy;
    return policySettings(networkPolicy, { family, node: this.#node, addresses: this.#addresses });
  }

  #podLinks(): readonly string[] {
    return this.#settings("IPv4").podLinks;
  }

  #isOwnNode(address: IpAddress): boolean {
    const { addresses } = this.#node?.status ?? {};
    return this.#ownAddresses.has(address) ||
      (addresses ?? []).some((each) => tryParseIpAddress(each.address) === address);
  }
}

/** Enabled by `--network-policy`; its rules are removed whether or not it is. */
export const NETWORK_POLICY_CONTROLLER: ControllerDefinition = {
  name: "network-policy",
  isEnabled: ({ proxy }) => proxy.networkPolicy.enabled,
  create: (parts) => new NetworkPolicyController(parts),
  async *cleanUp(dependencies, { proxy, relay }) {
    for (const [, create] of backendsFor(dependencies, proxy)) {
      await using backend = create();
      yield await (relay.dryRun ? backend.previewCleanup() : backend.cleanup());
    }
  },
};

/** The data planes of every tool and family, for a cleanup. */
function backendsFor(
  dependencies: Dependencies & { readonly logger: Logger },
  proxy: KubeProxyConfiguration,
): readonly (readonly [tool: string, create: () => PolicyBackend])[] {
  const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, "nftables");
  return Object.entries(dependencies.policyBackends).flatMap(([tool, create]) =>
    IP_FAMILIES.map((family) =>
      [tool, () => create(dependencies, { family, syncPeriodMs })] as const
    )
  );
}

/** Whether a policy names nodes. */
function namesNodes({ spec: { ingress = [], egress = [] } }: ClusterNetworkPolicy): boolean {
  const peers = [...ingress.map(({ from }) => from), ...egress.map(({ to }) => to)];
  return peers.some((each) => each?.some(({ nodes }) => nodes !== undefined));
}
