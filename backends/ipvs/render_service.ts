/**
 * From the plan of one ServicePort to what it wants of the kernel. Pure.
 *
 * @module
 */
import { prefixLengthOf } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port } from "../../lib/net/port.ts";
import { admittedSources } from "../../lib/proxy/admitted_sources.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import { hairpinEndpoints } from "../../lib/proxy/hairpin.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { servicePortText } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { ruleText } from "../netfilter/iptables_objects.ts";
import { entryOfCidr } from "./ipset_text.ts";
import { mayHaveNodePorts } from "./node_port_servers.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { type SchedulingChoice, schedulingOf } from "./scheduler.ts";
import type { ServiceFront, ServiceParts, SetEntry } from "./service_front.ts";
import { serverKey, type VirtualServer } from "./virtual_server.ts";

/** What all ServicePorts share. */
interface ServiceRenderContext {
  readonly shared: Pick<SharedPlan, "nodePortAddresses">;
  readonly options: IpvsRenderOptions;
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** What a ServicePort wants. The same plan always gives the same. */
export function renderService(plan: ServicePlan, context: ServiceRenderContext): ServiceParts {
  return new ServiceDraft(plan, context).parts();
}

/** The parts of one ServicePort while they are put together. */
class ServiceDraft {
  readonly #plan: ServicePlan;
  readonly #context: ServiceRenderContext;
  readonly #fronts = new Map<string, ServiceFront>();
  readonly #scheduling: SchedulingChoice;
  /** Whether the cluster IP leads where clients from inside are to go. */
  #isInternalForAll: boolean | undefined;

  constructor(plan: ServicePlan, context: ServiceRenderContext) {
    this.#plan = plan;
    this.#context = context;
    this.#scheduling = schedulingOf(plan.annotations, context.options.scheduler);
  }

  parts(): ServiceParts {
    const { key, externalIps, loadBalancerVips, nodePort } = this.#plan;
    this.#addClusterIp();
    for (const address of externalIps) this.#addExternalIp(address);
    for (const address of loadBalancerVips) this.#addLoadBalancer(address);
    if (nodePort !== undefined) this.#addNodePort(nodePort);
    return {
      fronts: [...this.#fronts.values()],
      entries: [...this.#hairpin(), ...this.#healthCheck()],
      quarantined: this.#scheduling.problems.map((reason) => ({ key, reason })),
    };
  }

  #addClusterIp(): void {
    const { clusterIp, internal, port } = this.#plan;
    const entry = this.#entryOf(clusterIp, port);
    this.#add(clusterIp, port, {
      isClusterIp: true,
      endpoints: endpointsOf(internal),
      entries: [
        ["CLUSTER-IP", entry],
        ["SERVED", entry],
        ...(internal.kind === "drop" ? [["NO-LOCAL-INTERNAL", entry] as const] : []),
      ],
      bound: clusterIp,
    });
  }

  #addExternalIp(address: IpAddress): void {
    const entry = this.#entryOf(address, this.#plan.port);
    const set = this.#isLocalPolicy ? "EXTERNAL-IP-LOCAL" : "EXTERNAL-IP";
    this.#addExternal(address, [[set, entry]]);
  }

  #addLoadBalancer(address: IpAddress): void {
    const entry = this.#entryOf(address, this.#plan.port);
    this.#addExternal(address, [
      ["LOAD-BALANCER", entry],
      ...(this.#isLocalPolicy ? [["LOAD-BALANCER-LOCAL", entry] as const] : []),
      ...this.#sourceRanges(address, entry),
    ]);
  }

  /** Without a range for this family nobody is admitted: all that is there is the firewall's entry. */
  #sourceRanges(address: IpAddress, entry: string): readonly SetEntry[] {
    const { nodeIp } = this.#context.options;
    const admitted = admittedSources({ role: "LoadBalancer", service: this.#plan }, [nodeIp]);
    // No set has room for a /0, and none is needed.
    if (!admitted || admitted.ranges.some((range) => prefixLengthOf(range) === 0)) return [];
    return [
      ...admitted.ranges.map((range): SetEntry => [
        "LOAD-BALANCER-SOURCE-CIDR",
        `${entry},${entryOfCidr(range)}`,
      ]),
      // The node's own packets have the address itself as source: it is bound here.
      ...(admitted.own.length > 0
        ? [["LOAD-BALANCER-SOURCE-IP", `${entry},${address}`] as const]
        : []),
      ["LOAD-BALANCER-FW", entry],
    ];
  }

  #addExternal(address: IpAddress, entries: readonly SetEntry[]): void {
    const { external, port } = this.#plan;
    const { nodeAddresses } = this.#context.options;
    const entry = this.#entryOf(address, port);
    this.#add(address, port, {
      isClusterIp: false,
      endpoints: endpointsOf(external),
      entries: [...entries, ["SERVED", entry], ...this.#noLocal(entry)],
      ...(!nodeAddresses.has(address) && { bound: address }),
      ...this.#fromCluster(address, port),
    });
  }

  #addNodePort(nodePort: Port): void {
    const { external, protocol } = this.#plan;
    for (const address of this.#context.shared.nodePortAddresses) {
      if (!mayHaveNodePorts(address)) continue;
      const entry = this.#entryOf(address, nodePort);
      const inSet = protocol === "SCTP" ? entry : String(nodePort);
      const suffix = protocol === "SCTP" ? "SCTP-HASH" as const : protocol;
      this.#add(address, nodePort, {
        isClusterIp: false,
        endpoints: endpointsOf(external),
        entries: [
          [`NODE-PORT-${suffix}`, inSet],
          ...(this.#isLocalPolicy ? [[`NODE-PORT-LOCAL-${suffix}`, inSet] as const] : []),
          ...this.#noLocal(entry),
        ],
        ...this.#fromCluster(address, nodePort),
      });
    }
  }

  /** The first to come has it: an external IP that is also a load balancer's has no source ranges. */
  #add(address: IpAddress, port: Port, front: Omit<ServiceFront, "server">): void {
    const { protocol, affinityTimeoutSeconds } = this.#plan;
    const { scheduler, flags } = this.#scheduling;
    const key = serverKey({ protocol, address, port });
    if (this.#fronts.has(key)) return;
    const server: VirtualServer = {
      key,
      scheduler,
      flags,
      ...(affinityTimeoutSeconds !== undefined && { persistenceSeconds: affinityTimeoutSeconds }),
    };
    this.#fronts.set(key, { ...front, server });
  }

  get #isLocalPolicy(): boolean {
    return this.#plan.masqueradeExternal === "from-node";
  }

  #noLocal(entry: string): readonly SetEntry[] {
    return this.#plan.external.kind === "drop" ? [["NO-LOCAL-EXTERNAL", entry]] : [];
  }

  /**
   * Sends what comes from pods and from the node itself to the cluster IP, whose virtual server has
   * all endpoints. Where policy Local binds that one too, there is none that has them.
   */
  #fromCluster(address: IpAddress, port: Port): Pick<ServiceFront, "rule"> {
    const { clusterIp, externalFromCluster, internal, name, protocol } = this.#plan;
    if (!this.#isLocalPolicy) return {};
    this.#isInternalForAll ??= isSameChoice(internal, externalFromCluster);
    if (!this.#isInternalForAll) return {};
    const rule = ruleText({
      destination: { value: address },
      protocol,
      destinationPorts: { first: port, last: port },
      comment: `${servicePortText(name)} from inside the cluster`,
      target: ["DNAT", "--to-destination", formatHostPort(clusterIp, this.#plan.port)],
    });
    return { rule };
  }

  /** Endpoints that are sent their own packets, which have to come from the node. */
  *#hairpin(): Generator<SetEntry> {
    for (const { address, port } of hairpinEndpoints(this.#plan)) {
      yield ["LOOP-BACK", `${this.#entryOf(address, port)},${address}`];
    }
  }

  #healthCheck(): readonly SetEntry[] {
    const { healthCheckNodePort } = this.#plan;
    if (healthCheckNodePort === undefined) return [];
    return [["HEALTH-CHECK-NODE-PORT", String(healthCheckNodePort)]];
  }

  #entryOf(address: IpAddress, port: Port): string {
    return `${address},${this.#plan.protocol.toLowerCase()}:${port}`;
  }
}

function endpointsOf(verdict: Verdict): readonly Endpoint[] {
  return verdict.kind === "forward" ? verdict.endpoints : NO_ENDPOINTS;
}

/** Whether two verdicts forward to the same endpoints. */
function isSameChoice(one: Verdict, other: Verdict): boolean {
  if (one.kind !== "forward" || other.kind !== "forward") return false;
  return one.endpoints === other.endpoints ||
    (one.endpoints.length === other.endpoints.length &&
      one.endpoints.every(({ key }, index) => key === other.endpoints[index]?.key));
}
