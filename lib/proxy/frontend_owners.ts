/**
 * Decides which ServicePort owns an address and port that several claim. The API server keeps cluster
 * IPs and node ports unique; it does not check external IPs and load balancer addresses, and manifests
 * may say anything.
 *
 * @module
 */
import { type AgentPort, AgentPorts } from "./agent_ports.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort, type Port, type Protocol } from "../net/port.ts";
import type { Quarantined } from "../engine/data_plane.ts";
import { reportedContests } from "./frontend.ts";
import type { ContestedFrontend, FrontendRole, Precedence, ServicePlan } from "./service_plan.ts";
import { type AddressSettings, type AskedHost, type KnownHost, refusalOf } from "./known_hosts.ts";
import type { ServicePort } from "./service_port.ts";
import { ServicePortIndex } from "./service_port_index.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** `address:port/PROTOCOL`; a node port has no address. */
type ClaimedFrontend = string & { readonly __brand: "ClaimedFrontend" };

/** The fields that a ServicePort and its plan have in common. */
type Claimant = Pick<
  ServicePort,
  | "clusterIp"
  | "createdAt"
  | "externalIps"
  | "healthCheckNodePort"
  | "key"
  | "loadBalancerVips"
  | "name"
  | "nodePort"
  | "port"
  | "protocol"
>;

/** The addresses of the node, as in the shared part of the plan. */
type NodeAddresses = Parameters<AgentPorts["setAddresses"]>[0];

/** Looks up the claimants. */
type Claimants = ReadonlyMap<ServicePortKey, Claimant>;

const NO_CLAIMS: readonly ClaimedFrontend[] = [];

/** The claims of all ServicePorts of one IP family. The cost is proportional to the change. */
export class FrontendOwners {
  /** After {@linkcode decide} the owner comes first. */
  readonly #claims = new ServicePortIndex<ClaimedFrontend>();
  /** Frontends that several ServicePorts use. */
  readonly #contested = new Set<ClaimedFrontend>();
  readonly #touched = new Set<ClaimedFrontend>();
  /** The ports of kube-relay itself, which precede every ServicePort. */
  readonly agent = new AgentPorts();
  /** The machines whose addresses no ServicePort may take. */
  readonly #hosts = new Map<IpAddress, KnownHost>();
  #settings: AddressSettings = {};
  #interfaceAddresses: ReadonlySet<IpAddress> = new Set();
  /** The ServicePorts that ask for an external IP or load balancer address. */
  readonly #asking = new ServicePortIndex<IpAddress>();
  readonly #changedHosts = new Set<IpAddress>();
  /** ServicePorts whose node port another one may have claimed or released on an address. */
  readonly #affected = new Set<ServicePortKey>();

  /** Replaces the claims of a ServicePort by those that it has now; `undefined` = it had or has none. */
  update(previous: ServicePlan | undefined, next: Claimant | undefined): void {
    const key = (previous ?? next)?.key;
    if (key === undefined || (previous && next && isSameClaim(previous, next))) return;
    this.agent.setCheck(key, {
      before: previous?.healthCheckNodePort,
      now: next?.healthCheckNodePort,
    });
    for (const address of previous ? externalAddressesOf(previous) : []) {
      this.#asking.delete(address, key);
    }
    for (const address of next ? externalAddressesOf(next) : []) this.#asking.add(address, key);
    for (const frontend of previous ? claimsOfPlan(previous) : NO_CLAIMS) {
      this.#touch(frontend);
      this.#claims.delete(frontend, previous!.key);
    }
    for (const frontend of next ? claimsOf(next) : NO_CLAIMS) {
      this.#claims.add(frontend, next!.key);
      this.#touch(frontend);
    }
  }

  /**
   * Takes the machine that has an address; `undefined` = none that is known. Returns whether a
   * ServicePort asks for the address.
   */
  setHost(address: IpAddress, host: KnownHost | undefined): boolean {
    if (host === undefined) this.#hosts.delete(address);
    else this.#hosts.set(address, host);
    if (!this.#asking.has(address)) return false;
    this.#changedHosts.add(address);
    return true;
  }

  /** The machines whose addresses a ServicePort asks for. */
  get askedHosts(): readonly AskedHost[] {
    return [...this.#asking.items].flatMap((address) => {
      const host = this.#hosts.get(address);
      return host === undefined ? [] : [{ address, ...host }];
    });
  }

  /** Whether machines changed since the last {@linkcode decide}. */
  get hasNewHosts(): boolean {
    return this.#changedHosts.size > 0;
  }

  /** Takes settings. The caller plans everything again if they differ. */
  setSettings(servers: readonly AgentPort[], settings: AddressSettings): void {
    this.agent.setServers(servers);
    this.#settings = settings;
  }

  /** Takes the addresses of the node. */
  setNodeAddresses(addresses: NodeAddresses): void {
    this.agent.setAddresses(addresses);
    const now = new Set(addresses.interfaceAddresses);
    for (const address of now.symmetricDifference(this.#interfaceAddresses)) {
      this.#changedHosts.add(address);
    }
    this.#interfaceAddresses = now;
  }

  /** The addresses of the node changed: each ServicePort with a node port may be affected. */
  touchNodePorts(claimants: Claimants): void {
    for (const { key, nodePort } of claimants.values()) {
      if (nodePort !== undefined) this.#affected.add(key);
    }
  }

  /**
   * Decides the owners of the updated frontends. Returns the ServicePorts that may have gained or
   * lost a frontend.
   */
  decide(claimants: Claimants): ReadonlySet<ServicePortKey> {
    const affected = new Set(this.#affected);
    for (const { address, port } of this.agent.takeChanged()) {
      for (const key of this.#claims.get(frontendText(address, port, "TCP"))) affected.add(key);
    }
    for (const address of this.#changedHosts) {
      for (const key of this.#asking.get(address)) affected.add(key);
    }
    this.#changedHosts.clear();
    for (const frontend of this.#touched) {
      const keys = this.#claims.get(frontend);
      const wasContested = this.#contested.has(frontend);
      if (keys.length > 1) {
        this.#contested.add(frontend);
        this.#sort(frontend, claimants);
      } else this.#contested.delete(frontend);
      if (keys.length > 1 || wasContested) { for (const key of keys) affected.add(key); }
    }
    this.#touched.clear();
    this.#affected.clear();
    return affected;
  }

  /** The frontends that a ServicePort claims and does not own; `undefined` = none. */
  contestedOf(
    claimant: Claimant,
    nodePortAddresses: readonly IpAddress[],
    claimants: Claimants,
  ): readonly ContestedFrontend[] | undefined {
    const { key, name, nodePort, protocol } = claimant;
    const found: ContestedFrontend[] = [];
    for (const wanted of frontendsIn(claimant)) {
      const { address } = wanted;
      const refusal = address && refusalOf(
        { ...wanted, address, name, protocol },
        this.#hosts.get(address),
        this.#interfaceAddresses.has(address),
        this.#settings,
      );
      const owner = refusal === undefined ? this.#ownerOf(wanted, protocol) : refusal;
      if (owner === undefined || owner === key) continue;
      if (typeof owner !== "string") found.push({ ...wanted, owner });
      else {
        const frontend = frontendText(wanted.address, wanted.port, protocol);
        const why = precedence(claimants.get(owner), claimant, frontend);
        found.push({ ...wanted, owner, why });
      }
    }
    const hasNodePort = !found.some(({ role }) => role === "NodePort");
    if (nodePort !== undefined && hasNodePort) {
      for (const address of nodePortAddresses) {
        const owner = this.#claims.first(frontendText(address, nodePort, protocol));
        if (owner === undefined) continue;
        found.push({ role: "NodePort", address, port: nodePort, owner, why: "address" });
      }
    }
    return found.length > 0 ? found : undefined;
  }

  #ownerOf(wanted: Wanted, protocol: Protocol): ContestedFrontend["owner"] | undefined {
    const server = protocol === "TCP" ? this.agent.serverAt(wanted) : undefined;
    if (server !== undefined) return { server };
    if (this.#contested.size === 0) return undefined;
    return this.#claims.first(frontendText(wanted.address, wanted.port, protocol));
  }

  #touch(frontend: ClaimedFrontend): void {
    if (this.#claims.get(frontend).length > 1 || this.#contested.has(frontend)) {
      this.#touched.add(frontend);
    }
    const nodePort = frontend.slice(frontend.lastIndexOf(":")) as ClaimedFrontend;
    if (nodePort === frontend) return;
    for (const key of this.#claims.get(nodePort)) this.#affected.add(key);
  }

  /** Puts the owner first. */
  #sort(frontend: ClaimedFrontend, claimants: Claimants): void {
    const ranked = this.#claims.get(frontend)
      .map((key) => ({ key, rank: rankOf(claimants.get(key), { key, frontend }) }))
      .sort((left, right) => left.rank < right.rank ? -1 : 1);
    for (const { key } of ranked) this.#claims.delete(frontend, key);
    for (const { key } of ranked) this.#claims.add(frontend, key);
  }
}

/** Returns a quarantine item, with its reason, for each frontend that a ServicePort lacks. */
export function contestedItems(
  plan: Pick<ServicePlan, "contested" | "key" | "protocol">,
): readonly Quarantined<ServicePortKey>[] {
  const { key, protocol } = plan;
  return reportedContests(plan).map(({ address, port, owner, why }) => {
    const frontend = frontendText(address, port, protocol);
    const reason = typeof owner === "string"
      ? `${frontend} belongs to ${owner}: ${PRECEDENCE_TEXTS[why!]}`
      : `${withheldText(port, owner)}. Give the Service another port or address`;
    return { key, address: frontend, reason };
  });
}

/** Why the owner of an address and port has it. */
export const PRECEDENCE_TEXTS: Readonly<Record<Precedence, string>> = {
  "cluster IP": "a cluster IP precedes other addresses",
  address: "addresses of Services precede node ports",
  age: "the Service that was there first keeps it",
  name: "neither Service is known to be older, so the first by name has it",
};

/** Returns the reason why no Service has a frontend. */
export function withheldText(
  port: Port,
  owner: Exclude<ContestedFrontend["owner"], ServicePortKey>,
): string {
  return "refusal" in owner
    ? owner.refusal
    : `port ${port} of this node is kube-relay's ${owner.server}`;
}

/**
 * The rank of a claim, as text that sorts: the first owns the address. A cluster IP precedes an entry
 * of `externalIPs`, which a user may write (CVE-2020-8554). Next the older Service precedes the newer
 * one, so that no Service takes over an address in use. Then the name decides. Every node reaches the
 * same result, in every mode and after every restart.
 */
function rankOf(
  claimant: Claimant | undefined,
  { key, frontend }: { readonly key: ServicePortKey; readonly frontend: ClaimedFrontend },
): string {
  return `${isClusterIpOf(claimant, frontend) ? 0 : 1} ${claimant?.createdAt ?? ""} ${key}`;
}

function isClusterIpOf(claimant: Claimant | undefined, frontend: ClaimedFrontend): boolean {
  return claimant !== undefined &&
    frontendText(claimant.clusterIp, claimant.port, claimant.protocol) === frontend;
}

function precedence(
  owner: Claimant | undefined,
  claimant: Claimant,
  frontend: ClaimedFrontend,
): Precedence {
  if (isClusterIpOf(owner, frontend) && !isClusterIpOf(claimant, frontend)) return "cluster IP";
  return owner?.createdAt === claimant.createdAt ? "name" : "age";
}

function isSameClaim(left: Claimant, right: ServicePlan | Claimant): boolean {
  return !("contested" in left) && left.clusterIp === right.clusterIp &&
    left.port === right.port && left.nodePort === right.nodePort &&
    left.healthCheckNodePort === right.healthCheckNodePort &&
    left.createdAt === right.createdAt && isSameList(left.externalIps, right.externalIps) &&
    isSameList(left.loadBalancerVips, right.loadBalancerVips);
}

function isSameList(left: readonly IpAddress[], right: readonly IpAddress[]): boolean {
  return left === right ||
    (left.length === right.length && left.every((address, index) => address === right[index]));
}

interface Wanted {
  readonly role: FrontendRole;
  readonly address?: IpAddress;
  readonly port: Port;
}

function frontendsIn(
  { clusterIp, externalIps, loadBalancerVips, nodePort, port }: Claimant,
): readonly Wanted[] {
  const wanted: Wanted[] = [{ role: "ClusterIP", address: clusterIp, port }];
  for (const address of externalIps) wanted.push({ role: "ExternalIP", address, port });
  for (const address of loadBalancerVips) wanted.push({ role: "LoadBalancer", address, port });
  if (nodePort !== undefined) wanted.push({ role: "NodePort", port: nodePort });
  return wanted;
}

/** Returns the external IPs and load balancer addresses of a claimant, also those it did not get. */
function externalAddressesOf(
  { externalIps, loadBalancerVips, contested = [] }: Claimant & Pick<ServicePlan, "contested">,
): readonly IpAddress[] {
  const refused = contested.flatMap(({ role, address }) =>
    address === undefined || role === "ClusterIP" || role === "NodePort" ? [] : [address]
  );
  return [...externalIps, ...loadBalancerVips, ...refused];
}

/** Returns every address and port that a ServicePort claims, as text. */
export function claimsOf(claimant: Claimant): readonly ClaimedFrontend[] {
  return frontendTexts(frontendsIn(claimant), claimant.protocol);
}

/** Returns all frontends that a ServicePort claims, including those that it did not get. */
function claimsOfPlan(plan: ServicePlan): readonly ClaimedFrontend[] {
  const { contested, protocol } = plan;
  return contested ? claimsOf(plan).concat(frontendTexts(contested, protocol)) : claimsOf(plan);
}

function frontendTexts(
  places: readonly Pick<Wanted, "address" | "port">[],
  protocol: Protocol,
): readonly ClaimedFrontend[] {
  return places.map(({ address, port }) => frontendText(address, port, protocol));
}

function frontendText(
  address: IpAddress | undefined,
  port: Port,
  protocol: Protocol,
): ClaimedFrontend {
  const place = address === undefined ? `:${port}` : formatHostPort(address, port);
  return `${place}/${protocol}` as ClaimedFrontend;
}
