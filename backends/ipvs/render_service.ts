import { prefixLengthOf } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port } from "../../lib/net/port.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import {
  frontendsOf,
  hairpinEndpoints,
  hasClusterIp,
  nodePortAddressesOf,
} from "../../lib/proxy/frontend.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { AdmittedSources, FrontendRole, ServicePlan } from "../../lib/proxy/service_plan.ts";
import { servicePortText } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { Cidr } from "../../lib/net/cidr.ts";
import { entryOfCidr } from "../netfilter/ipset/ipset_text.ts";
import { dsrOf } from "./dsr.ts";
import { DEFAULT_SCHEDULER, type Scheduler, schedulingOf } from "./scheduler.ts";
import { type ServerAddress, type ServerKey, serverKey } from "../netfilter/virtual_servers.ts";
import type { SetId } from "./ipset_table.ts";

/** Extensions of iptables that a kernel may lack without that the mode cannot work. */
export interface IpvsFeatures {
  /** `MASQUERADE --random-fully`, iptables 1.6.2: fewer collisions of source ports. */
  readonly randomFully: boolean;
}

/** Settings of one IP family. */
export interface IpvsRenderOptions {
  readonly family: IpFamily;
  readonly features: IpvsFeatures;
  /** Bit of the packet mark that asks for masquerade, 0 to 31 (`iptables.masqueradeBit`). */
  readonly masqueradeBit: number;
  /** The scheduler of Services that request none. */
  readonly scheduler: Scheduler;
  /**
   * Addresses of the node's own interfaces. They are not bound again, and the node's ports on them
   * stay open, even if a Service uses such an address.
   */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
  /** Ranges that cluster IPs are taken from, which no pod may have by direct server return. */
  readonly serviceCidrs: readonly Cidr[];
}

/** kube-proxy's defaults. */
export function defaultIpvsOptions(family: IpFamily): IpvsRenderOptions {
  return {
    family,
    features: { randomFully: true },
    masqueradeBit: 14,
    scheduler: DEFAULT_SCHEDULER,
    nodeAddresses: new Set(),
    serviceCidrs: [],
  };
}

/** Value and mask of the mark that asks for masquerade, as kube-proxy spells it. */
export function masqueradeMark({ masqueradeBit }: IpvsRenderOptions): string {
  return `0x${(2 ** masqueradeBit).toString(16).padStart(8, "0")}`;
}

/** An entry of a set. */
export type SetEntry = readonly [set: SetId, entry: string];

/** A frontend of a ServicePort, with its objects in the kernel. */
export interface ServiceFrontend extends ServerAddress {
  readonly role: FrontendRole;
  readonly port: Port;
  readonly server: ServerKey;
  /**
   * Scheduler, persistence and flags as arguments of `ipvsadm`. Without `-p` an edit ends persistence;
   * without `-b` it removes flags.
   */
  readonly setup: string;
  /** Its real servers. */
  readonly endpoints: readonly Endpoint[];
  /** Whether they get packets by a tunnel, and reply themselves. */
  readonly isTunnelled: boolean;
  readonly entries: readonly SetEntry[];
  /** The address that the device needs for it; `undefined` = it is an address of the node already. */
  readonly bound?: IpAddress;
  /** Rule of `KUBE-FROM-CLUSTER`, without the chain. */
  readonly rule?: string;
}

/** The inputs that all ServicePorts, or the fixed rules, share. */
export interface RenderInputs {
  readonly shared: Pick<SharedPlan, "localTraffic" | "nodePortAddresses">;
  readonly options: IpvsRenderOptions;
}

/**
 * Renders the desired objects of a ServicePort. The result depends on nothing else. Each frontend has
 * a different virtual server; `entries` belong to no single address. `lostPods`: those that get no
 * packets by tunnels. @default {none}
 */
export function renderService(
  plan: ServicePlan,
  { shared, options }: RenderInputs,
  lostPods?: ReadonlySet<IpAddress>,
): {
  readonly frontends: readonly ServiceFrontend[];
  readonly entries: readonly SetEntry[];
} {
  const { clusterIp, healthCheckNodePort, name, protocol } = plan;
  const { scheduler, flags } = schedulingOf(plan.annotations, options.scheduler);
  const seconds = plan.affinityTimeoutSeconds;
  const setup = `-s ${scheduler}${seconds === undefined ? "" : ` -p ${seconds}`}` +
    (flags.length === 0 ? "" : ` -b ${flags.join(",")}`);
  const entryOf = (address: IpAddress, port: Port) =>
    `${address},${protocol.toLowerCase()}:${port}`;
  const frontends: ServiceFrontend[] = [];
  const hasDsr = dsrOf(plan, options).isOn;
  // Endpoints that are sent their own packets, which have to come from the node.
  const common = hairpinEndpoints(plan).map(({ address, port }): SetEntry => [
    "LOOP-BACK",
    `${entryOf(address, port)},${address}`,
  ]);
  if (healthCheckNodePort !== undefined) {
    common.push(["HEALTH-CHECK-NODE-PORT", String(healthCheckNodePort)]);
  }
  // Whether the cluster IP serves clients from inside the cluster as required.
  let isInternalForAll: boolean | undefined;
  for (const frontend of frontendsOf(plan)) {
    const { role, port, admitted, verdict: { internal, external } } = frontend;
    const verdict = role === "ClusterIP" ? internal : external;
    const isTunnelled = hasDsr && (role === "ExternalIP" || role === "LoadBalancer");
    const keepsClient = role !== "ClusterIP" &&
      (isTunnelled || frontend.masquerade === "from-node");
    const addresses = frontend.address === undefined
      ? nodePortAddressesOf(plan, shared.nodePortAddresses).filter(mayHaveNodePorts)
      : [frontend.address];
    for (const address of addresses) {
      const entry = entryOf(address, port);
      const entries: SetEntry[] = [];
      if (role === "ClusterIP") {
        if (internal.kind === "drop") entries.push(["NO-LOCAL-INTERNAL", entry]);
        entries.push(["CLUSTER-IP", entry]);
      } else if (role === "ExternalIP") {
        entries.push([keepsClient ? "EXTERNAL-IP-LOCAL" : "EXTERNAL-IP", entry]);
      } else if (role === "LoadBalancer") {
        entries.push(...sourceRanges(admitted, address, entry), ["LOAD-BALANCER", entry]);
        if (keepsClient) entries.push(["LOAD-BALANCER-LOCAL", entry]);
      } else {
        common.push(["NODE-PORT-IPS", address]);
        const inSet = protocol === "SCTP" ? entry : String(port);
        const suffix = protocol === "SCTP" ? "SCTP-HASH" : protocol;
        if (keepsClient) entries.push([`NODE-PORT-LOCAL-${suffix}`, inSet]);
        entries.push([`NODE-PORT-${suffix}`, inSet]);
      }
      if (isTunnelled) common.push(["DSR", address]);
      if (role !== "NodePort") entries.push(["SERVED", entry]);
      if (role !== "ClusterIP" && external.kind === "drop") {
        entries.push(["NO-LOCAL-EXTERNAL", entry]);
      }
      const isBound = role !== "NodePort" &&
        (role === "ClusterIP" || !options.nodeAddresses.has(address));
      // Packets from pods and from the node are sent to the cluster IP, whose virtual server has all
      // endpoints. If policy Local applies there too, no server has all of them.
      const isRedirected = keepsClient &&
        (isInternalForAll ??= hasClusterIp(plan) && isSameChoice(plan.internal, internal));
      const rule = isRedirected && ruleText({
        destination: { value: address },
        protocol,
        destinationPorts: { first: port, last: port },
        comment: `${servicePortText(name)} from inside the cluster`,
        target: ["DNAT", "--to-destination", formatHostPort(clusterIp, plan.port)],
      });
      const at = { protocol, address, port };
      const chosen = endpointsOf(verdict);
      const endpoints = isTunnelled && lostPods?.size
        ? chosen.filter((each) => !lostPods.has(each.address))
        : chosen;
      frontends.push({
        ...{ role, ...at, server: serverKey(at), setup, endpoints, isTunnelled, entries },
        ...(isBound && { bound: address }),
        ...(rule && { rule }),
      });
    }
  }
  return { frontends, entries: common };
}

/** Without a range for this family no client is admitted: only the firewall has an entry. */
function sourceRanges(
  admitted: AdmittedSources | undefined,
  address: IpAddress,
  entry: string,
): readonly SetEntry[] {
  // No set has room for a /0, and none is needed.
  if (admitted === undefined || admitted.ranges.some((range) => prefixLengthOf(range) === 0)) {
    return [];
  }
  return [
    ["LOAD-BALANCER-FW", entry],
    ...admitted.ranges.map((range): SetEntry => [
      "LOAD-BALANCER-SOURCE-CIDR",
      `${entry},${entryOfCidr(range)}`,
    ]),
    // The node's own packets have this address as their source, because it is bound here.
    ...(admitted.own.length > 0
      ? [["LOAD-BALANCER-SOURCE-IP", `${entry},${address}`] as const]
      : []),
  ];
}

/** Whether an address of the node can serve node ports. */
function mayHaveNodePorts(address: IpAddress): boolean {
  // An endpoint cannot reply to a loopback address, and a link-local address needs its link.
  return !isLoopback(address) && !address.startsWith("fe80:");
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** The endpoints of a verdict; none unless it forwards. */
export function endpointsOf(verdict: Verdict): readonly Endpoint[] {
  return verdict.kind === "forward" ? verdict.endpoints : NO_ENDPOINTS;
}

/** Whether two verdicts forward to the same endpoints. */
function isSameChoice(one: Verdict, other: Verdict): boolean {
  if (one.kind !== "forward" || other.kind !== "forward") return false;
  return one.endpoints === other.endpoints ||
    (one.endpoints.length === other.endpoints.length &&
      one.endpoints.every(({ key }, index) => key === other.endpoints[index]?.key));
}
