/**
 * Decides which ServicePort owns an address and port that several claim. The API server keeps cluster
 * IPs and node ports unique; it does not check external IPs and load balancer addresses, and manifests
 * may say anything.
 *
 * @module
 */
import type { Quarantined } from "../engine/data_plane.ts";
import { type Cidr, cidrContains } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { ANY_NAME } from "../net/server_name.ts";
import { SetIndex } from "../net/set_index.ts";
import { formatHostPort, type Port, type Protocol } from "../net/port.ts";
import { reportedContests } from "./frontend.ts";
import type {
  ContestedFrontend,
  FrontendRole,
  Precedence,
  RefusedFrontend,
  RefusedName,
  ServicePlan,
  SharedFrontend,
} from "./service_plan.ts";
import type { ServicePort } from "./service_port.ts";
import {
  serviceKeyOfPort,
  type ServicePortKey,
  type ServicePortName,
} from "./service_port_name.ts";

/**
 * `address:port/PROTOCOL`; a node port has no address. With a blank and a server name, the part of it
 * that this name leads to; without one, all that has no owner by name.
 */
type ClaimedFrontend = string & { readonly __brand: "ClaimedFrontend" };

/** The fields that a ServicePort and its plan have in common. */
type Claimant = Pick<
  ServicePort,
  | "clusterIp"
  | "createdAt"
  | "edge"
  | "externalIps"
  | "healthCheckNodePort"
  | "key"
  | "loadBalancerVips"
  | "name"
  | "nodePort"
  | "port"
  | "protocol"
>;

/** A port on which a server of kube-relay listens, by TCP. */
export interface AgentPort {
  readonly port: Port;
  /** `undefined` = every address of the node. */
  readonly address?: IpAddress;
  /** For messages, e.g. `health server`. */
  readonly server: string;
}

/**
 * The claims of all ServicePorts of one IP family, and of kube-relay itself, which precede them: a load
 * balancer would check an endpoint of a Service instead of the node. The cost is proportional to the
 * change.
 */
export class FrontendOwners {
  readonly #claimants = new Map<ServicePortKey, Claimant>();
  /** After {@linkcode decide} the owner comes first. */
  readonly #claims = new SetIndex<ClaimedFrontend, ServicePortKey>();
  /** Frontends that several ServicePorts use. */
  readonly #contested = new Set<ClaimedFrontend>();
  readonly #touched = new Set<ClaimedFrontend>();
  /** The ServicePorts that share a frontend by server names. */
  readonly #sharers = new SetIndex<ClaimedFrontend, ServicePortKey>();
  /** Of these frontends, those with other claims than before. */
  readonly #touchedShared = new Map<ClaimedFrontend, "names" | "whole">();
  #servers: readonly AgentPort[] = [];
  /** The ServicePorts with each health check node port. */
  readonly #checks = new SetIndex<`${Port}`, ServicePortKey>();
  /** The machines whose addresses no ServicePort may take. */
  readonly #hosts = new Map<IpAddress, KnownHost>();
  #settings: AddressSettings = {};
  #interfaceAddresses: ReadonlySet<IpAddress> = new Set();
  #nodePortAddresses: ReadonlySet<IpAddress> = new Set();
  /** The ServicePorts that ask for an external IP or load balancer address. */
  readonly #asking = new SetIndex<IpAddress, ServicePortKey>();
  /** Addresses that the node or another machine got or gave up. */
  readonly #changedAddresses = new Set<IpAddress>();
  /** ServicePorts that may have gained or lost a frontend besides those that are touched. */
  readonly #affected = new Set<ServicePortKey>();

  /** Replaces the claims of a ServicePort; `undefined` = it has none. */
  update(key: ServicePortKey, next: Claimant | undefined): void {
    const previous = this.#claimants.get(key);
    if (previous === next) return;
    if (next) this.#claimants.set(key, next);
    else this.#claimants.delete(key);
    const [before, now] = [previous?.healthCheckNodePort, next?.healthCheckNodePort];
    if (before !== now) {
      if (before !== undefined) this.#checks.delete(`${before}`, key);
      if (now !== undefined) this.#checks.add(`${now}`, key);
      for (const port of [before, now]) {
        if (port === undefined) continue;
        for (const address of [undefined, ...this.#nodePortAddresses]) this.#affect(address, port);
      }
    }
    for (const address of externalAddressesOf(previous)) this.#asking.delete(address, key);
    for (const address of externalAddressesOf(next)) this.#asking.add(address, key);
    for (const { frontend, parts, isShared } of previous ? this.#claimsOf(previous) : []) {
      for (const part of parts) {
        this.#touch(part, frontend);
        this.#claims.delete(part, key);
      }
      if (isShared) this.#sharers.delete(frontend, key);
    }
    for (const { frontend, parts, isShared } of next ? this.#claimsOf(next) : []) {
      if (isShared) this.#sharers.add(frontend, key);
      for (const part of parts) {
        this.#claims.add(part, key);
        this.#touch(part, frontend);
      }
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
    this.#changedAddresses.add(address);
    return true;
  }

  /** The machines whose addresses a ServicePort asks for. */
  get askedHosts(): readonly AskedHost[] {
    return [...this.#asking.keys()].flatMap((address) => {
      const host = this.#hosts.get(address);
      return host === undefined ? [] : [{ address, ...host }];
    });
  }

  /** Whether machines changed since the last {@linkcode decide}. */
  get hasNewHosts(): boolean {
    return this.#changedAddresses.size > 0;
  }

  /** Takes settings. The caller plans everything again if they differ. */
  setSettings(servers: readonly AgentPort[], settings: AddressSettings): void {
    this.#servers = servers;
    this.#settings = settings;
  }

  /** Takes the addresses of the node. Each ServicePort with a node port may be affected. */
  setNodeAddresses({ interfaceAddresses, nodePortAddresses }: {
    readonly interfaceAddresses: readonly IpAddress[];
    readonly nodePortAddresses: readonly IpAddress[];
  }): void {
    const [own, ofNodePorts] = [new Set(interfaceAddresses), new Set(nodePortAddresses)];
    const changed = ofNodePorts.symmetricDifference(this.#nodePortAddresses);
    for (const address of own.symmetricDifference(this.#interfaceAddresses).union(changed)) {
      this.#changedAddresses.add(address);
    }
    this.#interfaceAddresses = own;
    this.#nodePortAddresses = ofNodePorts;
    if (changed.size === 0) return;
    for (const { key, nodePort } of this.#claimants.values()) {
      if (nodePort !== undefined) this.#affected.add(key);
    }
  }

  /**
   * Decides the owners of the updated frontends. Returns the ServicePorts that may have gained or
   * lost a frontend.
   */
  decide(): ReadonlySet<ServicePortKey> {
    for (const address of this.#changedAddresses) {
      for (const key of this.#asking.at(address)) this.#affected.add(key);
      for (const { port } of this.#servers) this.#affect(address, port);
      for (const port of this.#checks.keys()) this.#affect(address, port);
    }
    this.#changedAddresses.clear();
    this.#decideShared();
    const affected = new Set(this.#affected);
    this.#affected.clear();
    // Those without a name first: their owners rank the claims to names.
    for (const frontend of [...this.#touched].sort(compareParts)) {
      const keys = [...this.#claims.at(frontend)];
      const wasContested = this.#contested.has(frontend);
      if (keys.length > 1) {
        this.#contested.add(frontend);
        this.#sort(frontend);
      } else this.#contested.delete(frontend);
      if (keys.length > 1 || wasContested) { for (const key of keys) affected.add(key); }
    }
    this.#touched.clear();
    return affected;
  }

  /** The frontends that a ServicePort claims and does not own; `undefined` = none. */
  contestedOf(claimant: Claimant): readonly ContestedFrontend[] | undefined {
    const { key, name, nodePort, protocol } = claimant;
    const found: ContestedFrontend[] = [];
    for (const { names, ...wanted } of frontendsIn(claimant, this.#settings.sharesByServerName)) {
      const { address } = wanted;
      const refusal = address && refusalOf(
        { ...wanted, address, name, protocol },
        this.#hosts.get(address),
        this.#interfaceAddresses.has(address),
        this.#settings,
      );
      const owner = refusal ?? this.#ownerOf({ ...wanted, ...(names && { names }) }, claimant);
      if (owner === undefined || owner === key) {
        const refused = names ? this.#refusedNames({ ...wanted, names }, claimant) : [];
        const [first] = refused.length === names?.length ? refused : [];
        if (!first) continue;
        found.push({ ...wanted, owner: first.owner, why: first.why, isByName: true });
      } else if (typeof owner !== "string") found.push({ ...wanted, owner });
      else {
        const [holder, frontend] = [this.#claimants.get(owner), textOf(wanted, protocol)];
        const isUnshared = names && !isClusterIpOf(holder, frontend);
        const why = isUnshared ? "unshared" : precedence(holder, claimant, frontend);
        found.push({ ...wanted, owner, why });
      }
    }
    const hasNodePort = !found.some(({ role }) => role === "NodePort");
    if (nodePort !== undefined && hasNodePort) {
      for (const address of this.#nodePortAddresses) {
        const frontend = frontendText(address, nodePort, protocol);
        const owner = this.#claims.first(frontend) ?? this.#sharers.first(frontend);
        if (owner === undefined) continue;
        found.push({ role: "NodePort", address, port: nodePort, owner, why: "address" });
      }
    }
    return found.length > 0 ? found : undefined;
  }

  /** The frontends of a ServicePort at which the server name decides; `undefined` = there are none. */
  sharedOf(claimant: Claimant): readonly SharedFrontend[] | undefined {
    const { clusterIp, key, protocol } = claimant;
    if (protocol !== "TCP" || !this.#settings.sharesByServerName) return undefined;
    const found = new Map<IpAddress, SharedFrontend>();
    for (const { names, ...wanted } of frontendsIn(claimant, true)) {
      const { address, role } = wanted;
      if (address === undefined || role === "ClusterIP" || address === clusterIp) continue;
      const frontend = textOf(wanted, protocol);
      if (!this.#sharers.has(frontend)) continue;
      if (names) {
        if (this.#holderOf(frontend, claimant) !== undefined) continue;
        const refused = this.#refusedNames({ ...wanted, names }, claimant);
        const others = new Set(refused.map(({ name }) => name));
        const rest = names.filter((each) => !others.has(each));
        found.set(address, { address, names: rest, ...(refused.length > 0 && { refused }) });
      } else if (this.#claims.first(frontend) === key && this.#hasOtherSharer(frontend, key)) {
        found.set(address, { address, names: [ANY_NAME] });
      }
    }
    return found.size > 0 ? [...found.values()] : undefined;
  }

  #ownerOf(wanted: Claimed, claimant: Claimant): ContestedFrontend["owner"] | undefined {
    const { protocol } = claimant;
    const server = protocol === "TCP" ? this.#serverAt(wanted) : undefined;
    if (server !== undefined) return { server };
    if (wanted.names) return this.#holderOf(textOf(wanted, protocol), claimant);
    if (this.#contested.size === 0) return undefined;
    return this.#claims.first(textOf(wanted, protocol));
  }

  /**
   * The ServicePort that has a frontend for itself, where another one wants to share it. A cluster IP is not
   * shared. A Service without server names takes all connections: only its own namespace may take some
   * of them away, because who gets a name's connections can also get a certificate for it.
   */
  #holderOf(frontend: ClaimedFrontend, sharer: Claimant): ServicePortKey | undefined {
    const key = this.#claims.first(frontend);
    const owner = key === undefined ? undefined : this.#claimants.get(key);
    if (!owner || key === sharer.key) return undefined;
    if (isClusterIpOf(owner, frontend)) return key;
    if (owner.edge?.sni || owner.name.namespace === sharer.name.namespace) return undefined;
    const rank = (each: Claimant) => rankOf(each, { key: each.key, frontend });
    return rank(owner) < rank(sharer) ? key : undefined;
  }

  #hasOtherSharer(frontend: ClaimedFrontend, key: ServicePortKey): boolean {
    for (const other of this.#sharers.at(frontend)) {
      if (other === key) continue;
      if (this.#holderOf(frontend, this.#claimants.get(other)!) === undefined) return true;
    }
    return false;
  }

  /** The names that another ServicePort has. */
  #refusedNames(wanted: Claimed, claimant: Claimant): readonly RefusedName[] {
    const { names = [] } = wanted;
    return claimsTo(wanted, claimant.protocol).flatMap((part, index) => {
      const owner = this.#claims.first(part);
      if (owner === undefined || owner === claimant.key) return [];
      const why = precedence(this.#claimants.get(owner), claimant, part);
      return [{ name: names[index]!, owner, why }];
    });
  }

  /** Finds what changed claims mean for the others of a shared frontend. */
  #decideShared(): void {
    for (const [frontend, what] of this.#touchedShared) {
      for (const key of this.#claims.at(frontend)) this.#affected.add(key);
      if (what === "names") continue;
      for (const key of this.#sharers.at(frontend)) {
        this.#affected.add(key);
        for (const name of this.#claimants.get(key)?.edge?.sni ?? []) {
          const part = partOf(frontend, name);
          if (this.#contested.has(part)) this.#touched.add(part);
        }
      }
    }
    this.#touchedShared.clear();
  }

  /** The server of kube-relay at an address and port, or at a node port, for messages. */
  #serverAt({ address, port }: Wanted): string | undefined {
    const own = this.#servers.find((each) => {
      if (each.port !== port) return false;
      // A node port has rules for all its addresses together, so one address of a server is enough.
      if (address === undefined) {
        return each.address === undefined || this.#nodePortAddresses.has(each.address);
      }
      return each.address === undefined
        ? this.#interfaceAddresses.has(address)
        : each.address === address;
    });
    if (own) return own.server;
    const check = this.#checks.first(`${port}`);
    if (check === undefined) return undefined;
    if (address !== undefined && !this.#nodePortAddresses.has(address)) return undefined;
    return `health check of ${serviceKeyOfPort(check)}`;
  }

  /** A server of kube-relay may have got or given up a port. */
  #affect(address: IpAddress | undefined, port: Port | `${Port}`): void {
    const frontend = frontendText(address, port, "TCP");
    for (const key of this.#claims.at(frontend)) this.#affected.add(key);
  }

  /** A claim to a frontend, or to the part of it that a name leads to, came or went. */
  #touch(part: ClaimedFrontend, frontend: ClaimedFrontend): void {
    if ([...this.#claims.at(part)].length > 1 || this.#contested.has(part)) {
      this.#touched.add(part);
    }
    if (part === frontend) {
      if (this.#sharers.has(frontend)) this.#touchedShared.set(frontend, "whole");
    } else if (!this.#touchedShared.has(frontend)) this.#touchedShared.set(frontend, "names");
    const nodePort = frontend.slice(frontend.lastIndexOf(":")) as ClaimedFrontend;
    if (nodePort === frontend) return;
    for (const key of this.#claims.at(nodePort)) this.#affected.add(key);
  }

  *#claimsOf(claimant: Claimant) {
    for (const wanted of frontendsIn(claimant, this.#settings.sharesByServerName)) {
      const { protocol } = claimant;
      // Who may write external IPs keeps no load balancer address from others.
      if (isOutOfRanges(wanted, this.#settings)) continue;
      const parts = claimsTo(wanted, protocol);
      yield { frontend: textOf(wanted, protocol), parts, isShared: wanted.names !== undefined };
    }
  }

  /** Puts the owner first. */
  #sort(frontend: ClaimedFrontend): void {
    const whole = wholeOf(frontend);
    const ranked = [...this.#claims.at(frontend)]
      .map((key) => {
        const claimant = this.#claimants.get(key);
        const rank = rankOf(claimant, { key, frontend });
        // Who gets no connections at all keeps no name from others.
        const isHeld = whole !== frontend && claimant && this.#holderOf(whole, claimant);
        return { key, rank: isHeld ? `2 ${rank}` : rank };
      })
      .sort((left, right) => left.rank < right.rank ? -1 : 1);
    for (const { key } of ranked) this.#claims.delete(frontend, key);
    for (const { key } of ranked) this.#claims.add(frontend, key);
  }
}

/** Names of one address that are reported, where another ServicePort has them. */
const MOST_REFUSED = 10;

/** Returns a quarantine item, with its reason, for each frontend that a ServicePort lacks. */
export function contestedItems(
  plan: Pick<ServicePlan, "contested" | "key" | "port" | "protocol" | "shared">,
): readonly Quarantined<ServicePortKey>[] {
  const { key, port, protocol, shared = [] } = plan;
  const names = shared.flatMap(({ address, refused = [] }) =>
    refused.slice(0, MOST_REFUSED).map(({ name, owner, why }, index) => {
      const part = partOf(frontendText(address, port, protocol), name);
      const more = index < MOST_REFUSED - 1 ? 0 : refused.length - MOST_REFUSED;
      const others = more > 0 ? `; ${more} more names are others', too` : "";
      const reason = `The connections for ${name} at ${wholeOf(part)} belong to ${owner}: ${
        PRECEDENCE_TEXTS[why]
      }${others}`;
      return { key, address: part, reason };
    })
  );
  const contests = reportedContests(plan).filter(({ isByName }) => !isByName);
  return [
    ...names,
    ...contests.map(({ address, port, owner, why }) => {
      const frontend = frontendText(address, port, protocol);
      const reason = typeof owner === "string"
        ? `${frontend} belongs to ${owner}: ${PRECEDENCE_TEXTS[why!]}`
        : `${withheldText(port, owner)}. Give the Service another port or address`;
      return { key, address: frontend, reason };
    }),
  ];
}

/** Why the owner of an address and port has it. */
export const PRECEDENCE_TEXTS: Readonly<Record<Precedence, string>> = {
  "cluster IP": "a cluster IP precedes other addresses",
  address: "addresses of Services precede node ports",
  age: "the Service that was there first keeps it",
  name: "neither Service is known to be older, so the first by name has it",
  unshared: "a Service of another namespace has all of it, as it has no kube-relay.io/sni",
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

interface Wanted {
  readonly role: FrontendRole;
  readonly address?: IpAddress;
  readonly port: Port;
}

interface Claimed extends Wanted {
  /** The server names for which it is claimed; `undefined` = all of it is. */
  readonly names?: readonly string[];
}

/** `shares`: whether server names count, as in {@linkcode AddressSettings.sharesByServerName}. */
function frontendsIn(
  { clusterIp, edge, externalIps, loadBalancerVips, nodePort, port, protocol }: Claimant,
  shares = false,
): readonly Claimed[] {
  const names = shares && protocol === "TCP" && edge?.sni && { names: [...new Set(edge.sni)] };
  const wanted: Claimed[] = [{ role: "ClusterIP", address: clusterIp, port }];
  for (const address of externalIps) wanted.push({ role: "ExternalIP", address, port, ...names });
  for (const address of loadBalancerVips) {
    wanted.push({ role: "LoadBalancer", address, port, ...names });
  }
  if (nodePort !== undefined) wanted.push({ role: "NodePort", port: nodePort });
  return wanted;
}

function externalAddressesOf(claimant: Claimant | undefined): readonly IpAddress[] {
  return claimant ? [...claimant.externalIps, ...claimant.loadBalancerVips] : [];
}

/** Returns every address and port that a ServicePort claims, and each with its server names, as text. */
export function claimsOf(claimant: Claimant): readonly ClaimedFrontend[] {
  return frontendsIn(claimant, true).flatMap((wanted) => [
    textOf(wanted, claimant.protocol),
    ...claimsTo(wanted, claimant.protocol),
  ]);
}

/** The claims to one frontend, in the order of the names. */
function claimsTo(wanted: Claimed, protocol: Protocol): readonly ClaimedFrontend[] {
  const frontend = textOf(wanted, protocol);
  return wanted.names ? wanted.names.map((name) => partOf(frontend, name)) : [frontend];
}

function textOf({ address, port }: Wanted, protocol: Protocol): ClaimedFrontend {
  return frontendText(address, port, protocol);
}

/** The part of a frontend that a server name leads to. All that is left belongs to its owner. */
function partOf(frontend: ClaimedFrontend, name: string): ClaimedFrontend {
  return name === ANY_NAME ? frontend : `${frontend} ${name}` as ClaimedFrontend;
}

function wholeOf(part: ClaimedFrontend): ClaimedFrontend {
  const blank = part.indexOf(" ");
  return blank < 0 ? part : part.slice(0, blank) as ClaimedFrontend;
}

function compareParts(left: ClaimedFrontend, right: ClaimedFrontend): number {
  return Number(left.includes(" ")) - Number(right.includes(" "));
}

function frontendText(
  address: IpAddress | undefined,
  port: Port | `${Port}`,
  protocol: Protocol,
): ClaimedFrontend {
  const place = address === undefined ? `:${port}` : formatHostPort(address, Number(port));
  return `${place}/${protocol}` as ClaimedFrontend;
}

/** A machine that has an address. */
export interface KnownHost {
  /** For messages, e.g. `the API server`. */
  readonly owner: string;
  /** TCP ports that this node itself connects to. */
  readonly ports?: readonly Port[];
  /** Whether it is a Node, which may serve a load balancer address of its own. */
  readonly isNode?: boolean;
}

/** A machine whose address a ServicePort asks for. */
export type AskedHost = { readonly address: IpAddress } & KnownHost;

/** The settings that {@linkcode refusalOf} depends on. */
export interface AddressSettings {
  /** Whether the mode makes Service addresses local. @default {false} */
  readonly bindsAddresses?: boolean;
  /** Whether the mode reads the server names of TLS clients. @default {false} */
  readonly sharesByServerName?: boolean;
  /** External IPs outside of these ranges are refused; empty = none is. @default {[]} */
  readonly externalIpRanges?: readonly Cidr[];
  /** Machines that the configuration names. @default {none} */
  readonly configuredHosts?: ReadonlyMap<IpAddress, KnownHost>;
}

function isOutOfRanges(
  { role, address }: Pick<Wanted, "role" | "address">,
  { externalIpRanges = [] }: AddressSettings,
): boolean {
  return role === "ExternalIP" && address !== undefined && externalIpRanges.length > 0 &&
    !externalIpRanges.some((range) => cidrContains(range, address));
}

/**
 * Returns why no Service may have an external IP or load balancer address on this node; `undefined` = one
 * may. `host`: the machine that is known to have it; `isOwn`: an interface of this node has it.
 */
function refusalOf(
  { name, role, address, port, protocol }: {
    readonly name: ServicePortName;
    readonly role: FrontendRole;
    readonly address: IpAddress;
    readonly port: Port;
    readonly protocol: Protocol;
  },
  known: KnownHost | undefined,
  isOwn: boolean,
  settings: AddressSettings,
): RefusedFrontend | undefined {
  const { bindsAddresses = false, configuredHosts } = settings;
  if (role !== "ExternalIP" && role !== "LoadBalancer") return undefined;
  if (isOutOfRanges({ role, address }, settings)) {
    return { refusal: `${address} is in none of the ranges of --external-ip-ranges` };
  }
  const host = known ?? configuredHosts?.get(address);
  if (host === undefined) return undefined;
  // An address of the node's own interfaces is local already.
  if (bindsAddresses && !isOwn) {
    return {
      refusal: `${address} is an address of ${host.owner}, which this node could no longer reach`,
      // k3s gives a Service of type LoadBalancer the addresses of all its Nodes.
      isUsual: role === "LoadBalancer" && host.isNode === true,
    };
  }
  // The Service of the API server itself may have its address: its endpoints are the API server.
  const isApiServer = name.namespace === "default" && name.name === "kubernetes";
  if (protocol !== "TCP" || !host.ports?.includes(port) || isApiServer) return undefined;
  return {
    refusal:
      `${address} and port ${port} are those of ${host.owner}, to which this node itself connects`,
  };
}
