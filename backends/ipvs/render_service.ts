/**
 * From the plan of one ServicePort to what it wants of the kernel. Pure.
 *
 * @module
 */
import { type Cidr, prefixLengthOf } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port } from "../../lib/net/port.ts";
import { admittedSources } from "../../lib/proxy/admitted_sources.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import {
  type Frontend,
  type FrontendRole,
  frontendsOf,
  hasClusterIp,
  nodePortAddressesOf,
} from "../../lib/proxy/frontend.ts";
import { hairpinEndpoints } from "../../lib/proxy/hairpin.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { servicePortText } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { entryOfCidr } from "../netfilter/ipset/ipset_text.ts";
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
  readonly #fronts: ServiceFront[] = [];
  readonly #scheduling: SchedulingChoice;
  /** Whether the cluster IP leads where clients from inside are to go. */
  #isInternalForAll: boolean | undefined;

  constructor(plan: ServicePlan, context: ServiceRenderContext) {
    this.#plan = plan;
    this.#context = context;
    this.#scheduling = schedulingOf(plan.annotations, context.options.scheduler);
  }

  parts(): ServiceParts {
    const { key } = this.#plan;
    for (const frontend of frontendsOf(this.#plan)) this.#addFrontend(frontend);
    return {
      fronts: this.#fronts,
      entries: [...this.#hairpin(), ...this.#healthCheck()],
      quarantined: this.#scheduling.problems.map((reason) => ({ key, reason })),
    };
  }

  #addFrontend({ role, address, port, sourceRanges }: Frontend): void {
    if (address === undefined) return this.#addNodePort(port);
    switch (role) {
      case "ClusterIP":
        return this.#addClusterIp();
      case "LoadBalancer":
        return this.#addLoadBalancer(address, sourceRanges);
      default:
        return this.#addExternalIp(address);
    }
  }

  #addClusterIp(): void {
    const { clusterIp, internal, port } = this.#plan;
    const entry = this.#entryOf(clusterIp, port);
    this.#add(clusterIp, port, {
      role: "ClusterIP",
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
    this.#addExternal("ExternalIP", address, [[set, entry]]);
  }

  #addLoadBalancer(address: IpAddress, sourceRanges: readonly Cidr[] | undefined): void {
    const entry = this.#entryOf(address, this.#plan.port);
    this.#addExternal("LoadBalancer", address, [
      ["LOAD-BALANCER", entry],
      ...(this.#isLocalPolicy ? [["LOAD-BALANCER-LOCAL", entry] as const] : []),
      ...(sourceRanges ? this.#sourceRanges(sourceRanges, { address, entry }) : []),
    ]);
  }

  /** Without a range for this family nobody is admitted: all that is there is the firewall's entry. */
  #sourceRanges(
    ranges: readonly Cidr[],
    { address, entry }: { readonly address: IpAddress; readonly entry: string },
  ): readonly SetEntry[] {
    const { nodeIp } = this.#context.options;
    const admitted = admittedSources(ranges, this.#plan, [nodeIp]);
    // No set has room for a /0, and none is needed.
    if (admitted.ranges.some((range) => prefixLengthOf(range) === 0)) return [];
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

  #addExternal(role: FrontendRole, address: IpAddress, entries: readonly SetEntry[]): void {
    const { external, port } = this.#plan;
    const { nodeAddresses } = this.#context.options;
    const entry = this.#entryOf(address, port);
    this.#add(address, port, {
      role,
      endpoints: endpointsOf(external),
      entries: [...entries, ["SERVED", entry], ...this.#noLocal(entry)],
      ...(!nodeAddresses.has(address) && { bound: address }),
      ...this.#fromCluster(address, port),
    });
  }

  #addNodePort(nodePort: Port): void {
    const { external, protocol } = this.#plan;
    const { nodePortAddresses } = this.#context.shared;
    for (const address of nodePortAddressesOf(this.#plan, nodePortAddresses)) {
      if (!mayHaveNodePorts(address)) continue;
      const entry = this.#entryOf(address, nodePort);
      const inSet = protocol === "SCTP" ? entry : String(nodePort);
      const suffix = protocol === "SCTP" ? "SCTP-HASH" as const : protocol;
      this.#add(address, nodePort, {
        role: "NodePort",
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

  #add(address: IpAddress, port: Port, front: Omit<ServiceFront, "server">): void {
    const { protocol, affinityTimeoutSeconds } = this.#plan;
    const { scheduler, flags } = this.#scheduling;
    const key = serverKey({ protocol, address, port });
    const server: VirtualServer = {
      key,
      scheduler,
      flags,
      ...(affinityTimeoutSeconds !== undefined && { persistenceSeconds: affinityTimeoutSeconds }),
    };
    this.#fronts.push({ ...front, server });
  }

  get #isLocalPolicy(): boolean {
    return this.#plan.externalTrafficPolicy === "Local";
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
    this.#isInternalForAll ??= hasClusterIp(this.#plan) &&
      isSameChoice(internal, externalFromCluster);
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
