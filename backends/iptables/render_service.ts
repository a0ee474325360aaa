import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import {
  type Frontend,
  frontendsOf,
  hairpinEndpoints,
  keepsClientAddress,
} from "../../lib/proxy/frontend.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { AdmittedSources, ServicePlan } from "../../lib/proxy/service_plan.ts";
import { servicePortText } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { LOCALHOST_COUNTER } from "../netfilter/iptables/iptables_features.ts";
import { type Rule, type RuleMatch, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { endpointName, type ServiceChainNames, serviceChainNames } from "../netfilter/names.ts";
import { LOOPBACK_RANGE, MARK_MASQ, masquerade, type TreeId } from "./base_chains.ts";
import { FROM_NODE, fromPod, internalMasqueradeMatch } from "../netfilter/local_match.ts";
import { addressPath, destinationPath, portPath } from "./packet_path.ts";
import {
  type IptablesFeatures,
  type IptablesRenderOptions,
  isInMasqueradedRange,
} from "./render_options.ts";

/**
 * Maximum number of rules for an inline choice of endpoints. Longer choices go into a chain of the
 * ServicePort, which costs iptables-nft as much as four or five rules.
 */
const MAX_INLINE_RULES = 3;
const MARK: Pick<Rule, "target"> = { target: [MARK_MASQ] };

/** Rules for one path of one tree. */
interface ServiceEntry {
  readonly tree: TreeId;
  readonly path: string;
  /** Orders the entries of one path; the lowest is first. */
  readonly rank: string;
  readonly rules: readonly string[];
}

/**
 * A ServicePort, rendered. Rules are text: as objects they are several times as large, which made the
 * first sync of 10,000 ServicePorts 15 MiB larger.
 */
export interface ServiceRules {
  /** By {@linkcode entryId}. */
  readonly entries: ReadonlyMap<string, ServiceEntry>;
  /** The rules of chains that only this ServicePort has, in table nat, by name. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** Parts that cannot be expressed. */
  readonly quarantined: readonly Quarantined[];
}

/** Distinguishes the entries of a ServicePort. */
export function entryId(tree: TreeId, path: string): string {
  return `${tree} ${path}`;
}

/** The rules of a ServicePort. The same plan always gives the same. */
export function renderService(
  plan: ServicePlan,
  localTraffic: LocalTrafficDetector,
  options: IptablesRenderOptions,
): ServiceRules {
  const { quarantined, everything, external } = unsupportedParts(plan, options.features);
  const draft = new ServiceDraft(plan, localTraffic, options);
  for (const frontend of frontendsOf(plan)) {
    if (frontend.role === "ClusterIP" ? !everything : !external) draft.add(frontend);
  }
  if (!external) draft.addHealthCheck();
  if (!everything) draft.addHairpin();
  return { entries: draft.entries, chains: draft.chains, quarantined };
}

/** The rules of one ServicePort while they are put together. */
class ServiceDraft {
  readonly entries = new Map<string, ServiceEntry>();
  readonly chains = new Map<string, readonly string[]>();
  readonly #plan: ServicePlan;
  readonly #localTraffic: LocalTrafficDetector;
  readonly #options: IptablesRenderOptions;
  /** The Service and port as users write them. */
  readonly #title: string;
  /** SHA-256 takes longer than all the rest, and most ServicePorts need no chain. */
  #names: ServiceChainNames | undefined;

  constructor(
    plan: ServicePlan,
    localTraffic: LocalTrafficDetector,
    options: IptablesRenderOptions,
  ) {
    this.#plan = plan;
    this.#localTraffic = localTraffic;
    this.#options = options;
    this.#title = servicePortText(plan.name);
  }

  add(frontend: Frontend): void {
    const { address, port, verdict: { external } } = frontend;
    const isServed = [external, frontend.verdict.internal].some(({ kind }) => kind === "forward");
    if (address === undefined) {
      if (isServed) this.#addNodePort(frontend);
      if (external.kind !== "forward") {
        this.#addPort("refusedNodePorts", port, this.#refusal(external));
      }
    } else if (frontend.role === "ClusterIP") {
      this.#addClusterIp(frontend, address);
    } else {
      // If only the cluster is served, the nat rules distinguish the clients.
      if (isServed) this.#addExternal(frontend, address);
      if (external.kind !== "forward") {
        this.#addDestination("refusedExternal", address, this.#refusal(external));
      }
    }
  }

  /** Endpoints that are sent their own packets, which have to come from the node. */
  addHairpin(): void {
    for (const { address } of hairpinEndpoints(this.#plan)) {
      const match: RuleMatch = { source: { value: address }, destination: { value: address } };
      this.#add("hairpin", addressPath(address), [
        { ...match, target: masquerade(this.#options) },
      ]);
    }
  }

  #addClusterIp({ verdict: { internal } }: Frontend, address: IpAddress): void {
    if (internal.kind !== "forward") {
      this.#addDestination("refused", address, this.#refusal(internal));
      return;
    }
    const match = this.#to(address);
    this.#addDestination("services", address, [
      ...this.#markInternal().map((rule) => ({ ...match, ...rule })),
      ...this.#choose(internal, match),
    ], "cluster IP");
  }

  #addExternal(frontend: Frontend, address: IpAddress): void {
    const { admitted, port, role } = frontend;
    const match = this.#to(address);
    const comment = role === "LoadBalancer" ? "loadbalancer IP" : "external IP";
    if (admitted === undefined) {
      this.#addDestination("services", address, this.#toExternal(frontend, match), comment);
      return;
    }
    // The firewall chain contains the admitted sources. Without any, no rule may lead to an
    // endpoint.
    if (admitted.ranges.length > 0) {
      const target = [this.#firewallChain(frontend, admitted)];
      this.#addDestination("services", address, [{ ...match, target }], comment);
    }
    this.#add("firewall", destinationPath(address, this.#plan.protocol, port), [{
      ...match,
      ...this.#comment("traffic not accepted by its source ranges"),
      target: ["DROP"],
    }]);
  }

  /** Sends admitted clients to the external chain; others return. */
  #firewallChain(frontend: Frontend, { ranges, own }: AdmittedSources): string {
    const target = [this.#externalChain(frontend)];
    const sources = [...ranges, ...own];
    return this.#chain("firewall", () => sources.map((value) => ({ source: { value }, target })));
  }

  #addNodePort(frontend: Frontend): void {
    const { port: nodePort } = frontend;
    const { features, localhostNodePorts } = this.#options;
    const match = this.#toPort(nodePort);
    const counter: Rule = {
      ...match,
      destination: { value: LOOPBACK_RANGE },
      extensions: [["nfacct", "--nfacct-name", LOCALHOST_COUNTER]],
    };
    const counts = features.nfacct && localhostNodePorts;
    this.#addPort("nodePorts", nodePort, [
      ...(counts ? [counter] : []),
      ...this.#commented(this.#toExternal(frontend, match), "node port"),
    ]);
  }

  addHealthCheck(): void {
    const { healthCheckNodePort: port } = this.#plan;
    if (port === undefined) return;
    const comment = this.#comment("health check node port");
    const match: RuleMatch = { protocol: "TCP", destinationPorts: { first: port, last: port } };
    this.#add("healthChecks", portPath("TCP", port), [
      { ...match, ...comment, target: ["ACCEPT"] },
    ]);
  }

  /** The rules for a packet to an external address from an admitted client. */
  #toExternal(frontend: Frontend, match: RuleMatch): readonly Rule[] {
    if (frontend.masquerade === "all") return this.#externalRules(frontend, match);
    return [{ ...match, target: [this.#externalChain(frontend)] }];
  }

  #externalChain(frontend: Frontend): string {
    return this.#chain("external", () => this.#externalRules(frontend, {}));
  }

  #externalRules(
    { masquerade, verdict: { external, internal } }: Frontend,
    match: RuleMatch,
  ): readonly Rule[] {
    if (masquerade === "all") return [{ ...match, ...MARK }, ...this.#choose(external, match)];
    const pod = fromPod(this.#localTraffic);
    return [
      ...(pod ? this.#choose(internal, { ...match, ...pod }) : []),
      { ...match, ...FROM_NODE, ...MARK },
      ...this.#choose(internal, { ...match, ...FROM_NODE }),
      ...this.#choose(external, match),
    ];
  }

  /** Sends matching packets to an endpoint of a verdict; no rules if it does not forward. */
  #choose(verdict: Verdict, match: RuleMatch): readonly Rule[] {
    if (verdict.kind !== "forward") return [];
    const { endpoints } = verdict;
    const { affinityTimeoutSeconds } = this.#plan;
    const rules = affinityTimeoutSeconds === undefined ? endpoints.length : 2 * endpoints.length;
    if (rules <= MAX_INLINE_RULES) return endpointRules(this.#plan, endpoints, match);
    const chain = this.#isCluster(endpoints) ? "cluster" : "local";
    const name = this.#chain(chain, () => endpointRules(this.#plan, endpoints, {}));
    return [{ ...match, target: [name] }];
  }

  /** Whether this is the list of policy Cluster. Policy Local may share it. */
  #isCluster(endpoints: readonly Endpoint[]): boolean {
    const { externalFromCluster, external, internal } = this.#plan;
    if (externalFromCluster.kind === "forward") return externalFromCluster.endpoints === endpoints;
    return external.kind !== "forward" && internal.kind === "forward";
  }

  #markInternal(): readonly Rule[] {
    const { clusterIp, masqueradeInternal } = this.#plan;
    if (masqueradeInternal === "off-cluster" && isInMasqueradedRange(this.#options, clusterIp)) {
      return [];
    }
    const match = internalMasqueradeMatch(this.#plan, this.#localTraffic);
    return match ? [{ ...match, ...MARK }] : [];
  }

  #refusal(verdict: Verdict): Rule {
    return verdict.kind === "drop"
      ? { ...this.#comment("has no local endpoints"), target: ["DROP"] }
      : { ...this.#comment("has no endpoints"), target: ["REJECT"] };
  }

  #addDestination(
    tree: TreeId,
    address: IpAddress,
    rules: Rule | readonly Rule[],
    role?: string,
  ): void {
    const { port, protocol } = this.#plan;
    const path = destinationPath(address, protocol, port);
    const list = isList(rules) ? rules : [{ ...this.#to(address), ...rules }];
    this.#add(tree, path, role === undefined ? list : this.#commented(list, role));
  }

  #addPort(tree: TreeId, port: Port, rules: Rule | readonly Rule[]): void {
    const list = isList(rules) ? rules : [{ ...this.#toPort(port), ...rules }];
    this.#add(tree, portPath(this.#plan.protocol, port), list);
  }

  #add(tree: TreeId, path: string, rules: readonly Rule[]): void {
    const texts = rules.map(ruleText);
    this.entries.set(entryId(tree, path), { tree, path, rank: this.#plan.key, rules: texts });
  }

  #chain(kind: keyof ServiceChainNames, rules: () => readonly Rule[]): string {
    this.#names ??= serviceChainNames(this.#plan.name);
    const name = this.#names[kind];
    if (!this.chains.has(name)) this.chains.set(name, rules().map(ruleText));
    return name;
  }

  #to(address: IpAddress): RuleMatch {
    return { destination: { value: address }, ...this.#toPort(this.#plan.port) };
  }

  #toPort(port: Port): RuleMatch {
    const { protocol } = this.#plan;
    return { protocol, destinationPorts: { first: port, last: port } };
  }

  #commented(rules: readonly Rule[], role: string): readonly Rule[] {
    const [first, ...rest] = rules;
    if (first === undefined || !this.#options.serviceComments) return rules;
    return [{ ...first, ...this.#comment(role) }, ...rest];
  }

  #comment(text: string): Pick<Rule, "comment"> {
    return this.#options.features.comment ? { comment: `${this.#title} ${text}` } : {};
  }
}

function isList(rules: Rule | readonly Rule[]): rules is readonly Rule[] {
  return Array.isArray(rules);
}

/** The decimals that upstream writes; the tools print one more. */
const PROBABILITY_DECIMALS = 10;

/**
 * Sends matching packets to one of the endpoints with equal probability; with session affinity, to
 * the client's last endpoint.
 *
 * Affinity needs two rules for each endpoint. `--update` matches only while the client was seen
 * within the time-out, and renews the entry. kube-proxy needs `--rcheck` here and `--set` in a
 * separate chain for the same effect. If no list contains the client, the second half chooses an
 * endpoint, and `--set` records the client after `statistic` has matched.
 */
function endpointRules(
  plan: Pick<ServicePlan, "affinityTimeoutSeconds" | "name" | "protocol">,
  endpoints: readonly Endpoint[],
  match: RuleMatch,
): readonly Rule[] {
  const { affinityTimeoutSeconds: seconds } = plan;
  // `--to-destination` with a port needs the protocol in the rule itself.
  const base = { ...match, protocol: plan.protocol };
  if (seconds === undefined) {
    return endpoints.map((endpoint, index) => ({
      ...base,
      ...extended(match, chance(endpoints.length - index)),
      target: dnat(endpoint),
    }));
  }
  const named = endpoints.map((endpoint) => ({
    endpoint,
    list: ["recent", "--name", endpointName(plan.name, endpoint.key)],
  }));
  const known = named.map(({ endpoint, list }) => ({
    ...base,
    ...extended(match, [[...list, "--update", "--seconds", String(seconds), "--reap"]]),
    target: dnat(endpoint),
  }));
  const drawn = named.map(({ endpoint, list }, index) => ({
    ...base,
    ...extended(match, [...chance(endpoints.length - index), [...list, "--set"]]),
    target: dnat(endpoint),
  }));
  return [...known, ...drawn];
}

/** Matches with a probability of 1 in `left`. The last endpoint needs no match. */
function chance(left: number): readonly (readonly string[])[] {
  if (left === 1) return [];
  const probability = (1 / left).toFixed(PROBABILITY_DECIMALS);
  return [["statistic", "--mode", "random", "--probability", probability]];
}

function dnat({ key }: Endpoint): readonly string[] {
  return ["DNAT", "--to-destination", key];
}

function extended(
  { extensions = [] }: RuleMatch,
  further: NonNullable<RuleMatch["extensions"]>,
): Pick<RuleMatch, "extensions"> {
  const all = [...extensions, ...further];
  return all.length === 0 ? {} : { extensions: all };
}

/** The parts of a ServicePort that get no rules, and why. */
interface Unsupported {
  /** Whether the whole ServicePort is unsupported. */
  readonly everything: boolean;
  /** Whether its external addresses and node port are unsupported. */
  readonly external: boolean;
  readonly quarantined: readonly Quarantined[];
}

const NOTHING: Unsupported = { everything: false, external: false, quarantined: [] };

/** Returns the parts of a ServicePort that these features cannot express. */
export function unsupportedParts(plan: ServicePlan, features: IptablesFeatures): Unsupported {
  const reason = reasonAgainstAll(plan, features);
  if (reason !== undefined) {
    return { everything: true, external: true, quarantined: [{ key: plan.key, reason }] };
  }
  if (features.addrtype || !keepsClientAddress(plan)) {
    return NOTHING;
  }
  const { key } = plan;
  return {
    everything: false,
    external: true,
    quarantined: [{
      key,
      address: "external addresses",
      reason: missing("addrtype", "external traffic policy Local, which treats the node apart"),
    }],
  };
}

function reasonAgainstAll(plan: ServicePlan, features: IptablesFeatures): string | undefined {
  if (plan.protocol === "SCTP" && !features.sctp) return missing("sctp", "ports of SCTP");
  const forwards = [plan.internal, plan.external, plan.externalFromCluster]
    .filter((verdict) => verdict.kind === "forward");
  if (!features.statistic && forwards.some(({ endpoints }) => endpoints.length > 1)) {
    return missing("statistic", "a choice between endpoints");
  }
  if (!features.recent && plan.affinityTimeoutSeconds !== undefined && forwards.length > 0) {
    return missing("recent", "session affinity");
  }
  return undefined;
}

function missing(extension: string, use: string): string {
  return `Cannot express ${use}: the kernel lacks the match '${extension}' (module xt_${extension})`;
}
