import { prefixLengthOf } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port } from "../../lib/net/port.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import {
  type Frontend,
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
import { entryOfCidr } from "../netfilter/ipset/ipset_text.ts";
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
}

/** kube-proxy's defaults. */
export function defaultIpvsOptions(family: IpFamily): IpvsRenderOptions {
  return {
    family,
    features: { randomFully: true },
    masqueradeBit: 14,
    scheduler: DEFAULT_SCHEDULER,
    nodeAddresses: new Set(),
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
  readonly entries: readonly SetEntry[];
  /** The address that the device needs for it; `undefined` = it is an address of the node already. */
  readonly bound?: IpAddress;
  /** Rule of `KUBE-FROM-CLUSTER`, without the chain. */
  readonly rule?: string;
}

/** All objects that a ServicePort needs. */
interface ServiceParts {
  /** Each has a different virtual server. */
  readonly frontends: readonly ServiceFrontend[];
  /** Entries that belong to no single address. */
  readonly entries: readonly SetEntry[];
}

/** The inputs that all ServicePorts, or the fixed rules, share. */
export interface RenderInputs {
  readonly shared: Pick<SharedPlan, "localTraffic" | "nodePortAddresses">;
  readonly options: IpvsRenderOptions;
}

/** An address of a ServicePort, and its entry in the sets. */
interface Place {
  readonly address: IpAddress;
  readonly entry: string;
}

/** Whether an address of the node can serve node ports. */
function mayHaveNodePorts(address: IpAddress): boolean {
  // An endpoint cannot reply to a loopback address, and a link-local address needs its link.
  return !isLoopback(address) && !address.startsWith("fe80:");
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** Renders the desired objects of a ServicePort. The result depends on nothing else. */
export function renderService(plan: ServicePlan, context: RenderInputs): ServiceParts {
  return new ServiceDraft(plan, context).parts();
}

/** The parts of one ServicePort while they are put together. */
class ServiceDraft {
  readonly #plan: ServicePlan;
  readonly #context: RenderInputs;
  readonly #frontends: ServiceFrontend[] = [];
  readonly #nodePortIps: SetEntry[] = [];
  readonly #setup: string;
  /** Whether the cluster IP serves clients from inside the cluster as required. */
  #isInternalForAll: boolean | undefined;

  constructor(plan: ServicePlan, context: RenderInputs) {
    this.#plan = plan;
    this.#context = context;
    const { scheduler, flags } = schedulingOf(plan.annotations, context.options.scheduler);
    const seconds = plan.affinityTimeoutSeconds;
    this.#setup = `-s ${scheduler}${seconds === undefined ? "" : ` -p ${seconds}`}` +
      (flags.length === 0 ? "" : ` -b ${flags.join(",")}`);
  }

  parts(): ServiceParts {
    for (const frontend of frontendsOf(this.#plan)) this.#addFrontend(frontend);
    return {
      frontends: this.#frontends,
      entries: [...this.#hairpin(), ...this.#healthCheck(), ...this.#nodePortIps],
    };
  }

  #addFrontend(frontend: Frontend): void {
    const { role, address } = frontend;
    if (address === undefined) return this.#addNodePort(frontend);
    const entry = this.#entryOf(address, frontend.port);
    switch (role) {
      case "ClusterIP":
        return this.#addClusterIp(frontend, { address, entry });
      case "LoadBalancer":
        return this.#addExternal(frontend, {
          address,
          entry,
          entries: [
            ...this.#sourceRanges(frontend.admitted, { address, entry }),
            ["LOAD-BALANCER", entry],
            ...(keepsClient(frontend) ? [["LOAD-BALANCER-LOCAL", entry] as const] : []),
          ],
        });
      default: {
        const set = keepsClient(frontend) ? "EXTERNAL-IP-LOCAL" : "EXTERNAL-IP";
        return this.#addExternal(frontend, { address, entry, entries: [[set, entry]] });
      }
    }
  }

  #addClusterIp({ role, port, verdict: { internal } }: Frontend, { address, entry }: Place): void {
    this.#add(address, port, {
      role,
      endpoints: endpointsOf(internal),
      entries: [
        ...(internal.kind === "drop" ? [["NO-LOCAL-INTERNAL", entry] as const] : []),
        ["CLUSTER-IP", entry],
        ["SERVED", entry],
      ],
      bound: address,
    });
  }

  /** Without a range for this family no client is admitted: only the firewall has an entry. */
  #sourceRanges(
    admitted: AdmittedSources | undefined,
    { address, entry }: Place,
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

  #addExternal(
    frontend: Frontend,
    { address, entry, entries }: Place & { readonly entries: readonly SetEntry[] },
  ): void {
    const { role, port, verdict: { external } } = frontend;
    const { nodeAddresses } = this.#context.options;
    this.#add(address, port, {
      role,
      endpoints: endpointsOf(external),
      entries: [...entries, ["SERVED", entry], ...noLocal(external, entry)],
      ...(!nodeAddresses.has(address) && { bound: address }),
      ...this.#fromCluster(frontend, address),
    });
  }

  #addNodePort(frontend: Frontend): void {
    const { role, port: nodePort, verdict: { external } } = frontend;
    const { protocol } = this.#plan;
    const { nodePortAddresses } = this.#context.shared;
    for (const address of nodePortAddressesOf(this.#plan, nodePortAddresses)) {
      if (!mayHaveNodePorts(address)) continue;
      this.#nodePortIps.push(["NODE-PORT-IPS", address]);
      const entry = this.#entryOf(address, nodePort);
      const inSet = protocol === "SCTP" ? entry : String(nodePort);
      const suffix = protocol === "SCTP" ? "SCTP-HASH" as const : protocol;
      this.#add(address, nodePort, {
        role,
        endpoints: endpointsOf(external),
        entries: [
          ...(keepsClient(frontend) ? [[`NODE-PORT-LOCAL-${suffix}`, inSet] as const] : []),
          [`NODE-PORT-${suffix}`, inSet],
          ...noLocal(external, entry),
        ],
        ...this.#fromCluster(frontend, address),
      });
    }
  }

  #add(
    address: IpAddress,
    port: Port,
    frontend: Omit<ServiceFrontend, "server" | "setup" | keyof ServerAddress>,
  ): void {
    const at = { protocol: this.#plan.protocol, address, port };
    this.#frontends.push({ ...frontend, ...at, server: serverKey(at), setup: this.#setup });
  }

  /**
   * Sends packets from pods and from the node to the cluster IP, whose virtual server has all
   * endpoints. If policy Local applies there too, no server has all of them.
   */
  #fromCluster(frontend: Frontend, address: IpAddress): Pick<ServiceFrontend, "rule"> {
    const { port, verdict } = frontend;
    const { clusterIp, internal, name, protocol } = this.#plan;
    if (!keepsClient(frontend)) return {};
    this.#isInternalForAll ??= hasClusterIp(this.#plan) &&
      isSameChoice(internal, verdict.internal);
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

/** Whether packets to the frontend keep their source. */
function keepsClient({ masquerade }: Frontend): boolean {
  return masquerade === "from-node";
}

function noLocal(external: Verdict, entry: string): readonly SetEntry[] {
  return external.kind === "drop" ? [["NO-LOCAL-EXTERNAL", entry]] : [];
}

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
