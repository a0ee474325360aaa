import type { Cidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { parsePort, type Port } from "../net/port.ts";
import type { KnownHost } from "../proxy/frontend_owners.ts";

/** The port on which BGP daemons listen. */
export const BGP_PORT = parsePort(179);

/** The tasks of this node's BGP daemon. Deeply read-only. */
export interface BgpPlan {
  /** Dotted decimal, as an IPv4 address; unique among the node's peers. */
  readonly routerId: string;
  /** The node's AS number, 1 to 4294967295. */
  readonly localAs: number;
  /** Sorted by {@linkcode BgpPeer.name}. */
  readonly peers: readonly BgpPeer[];
  /** Sorted by prefix. Nothing else ever leaves the node. */
  readonly announced: readonly AnnouncedPrefix[];
  /** The received prefixes that go into the kernel. */
  readonly imports: BgpImports;
}

/** A BGP session. */
export interface BgpPeer {
  /** Unique; of letters, digits and `_`, and begins with a letter. */
  readonly name: string;
  readonly address: IpAddress;
  readonly port: Port;
  readonly as: number;
  /** The purpose of the session: nodes exchange pod CIDRs, external routers learn prefixes. */
  readonly role: "external" | "mesh" | "reflector-client";
  /** The source address of the session. @default {chosen by the kernel} */
  readonly localAddress?: IpAddress;
  /** A file that holds the TCP-MD5 password: the password is never part of a plan. */
  readonly passwordFile?: string;
  /** The same in a key of a Secret, in the namespace of Leases. */
  readonly passwordSecret?: SecretKey;
  /** Maximum number of hops; absent if the peer is on a network of the node. */
  readonly multihopTtl?: number;
  readonly holdTimeSeconds: number;
  readonly bfd: boolean;
  /** The time for which routes stay while the peer restarts; absent without graceful restart. */
  readonly gracefulRestartSeconds?: number;
  /** The cluster ID with which routes are reflected, as {@linkcode BgpPlan.routerId}. */
  readonly reflectorClusterId?: string;
  /** The number of times that the node's AS is added to paths sent to this peer. */
  readonly prepend: number;
  /** What is accepted from this peer. @default {that of its role in {@linkcode BgpImports}} */
  readonly import?: PeerImports;
  /** The addresses with which routes are announced, instead of the session's own. */
  readonly nextHopSelf: boolean;
  /**
   * The next hop of prefixes of the other family, an address of that family. @default {the session
   * carries only the family of its own addresses}
   */
  readonly otherNextHop?: IpAddress;
}

/** A key of a Secret. */
export interface SecretKey {
  readonly name: string;
  readonly key: string;
}

/**
 * Returns the bytes of a key of a Secret. Rejects with a {@linkcode SecretUnknownError} if what is in use
 * has to stay, and with another Error if there is no such key.
 */
export type ReadSecret = (key: SecretKey) => Promise<Uint8Array>;

/** The value cannot be had now, which says nothing about the Secret. */
export class SecretUnknownError extends Error {
  override name = "SecretUnknownError";
}

/** Returns the machine at the other end of a session: no Service may have its address and port. */
export function bgpHostOf({ name, port }: Pick<BgpPeer, "name" | "port">): KnownHost {
  return { owner: `BGP peer ${name}`, ports: [port] };
}

/** Whether a session has a password. */
export function hasPassword(
  { passwordFile, passwordSecret }: Pick<BgpPeer, "passwordFile" | "passwordSecret">,
): boolean {
  return passwordFile !== undefined || passwordSecret !== undefined;
}

/** Whether a session carries announcements of a family. */
export function carriesFamily(
  { address, otherNextHop }: Pick<BgpPeer, "address" | "otherNextHop">,
  family: IpFamily,
): boolean {
  return ipFamilyOf(address) === family || otherNextHop !== undefined;
}

/** Routes that are accepted from one peer; everything else is refused. */
export interface PeerImports {
  readonly prefixes: readonly ImportedPrefix[];
  /** Accepted although they are in {@linkcode BgpImports.refused}. */
  readonly clusterPrefixes: readonly ImportedPrefix[];
  readonly defaultRoute: boolean;
}

/** Prefixes in a range, by their lengths. */
export interface ImportedPrefix {
  readonly prefix: Cidr;
  /** At least that of the range, and at least 1. */
  readonly minLength: number;
  readonly maxLength: number;
}

/** The longest prefix of each family. */
export const LONGEST_PREFIX: Readonly<Record<IpFamily, number>> = { IPv4: 32, IPv6: 128 };

/** A prefix that the node announces, and to which kinds of peers. */
export interface AnnouncedPrefix {
  readonly prefix: Cidr;
  readonly to: readonly BgpPeer["role"][];
  readonly kind: "cluster-ip" | "external-ip" | "load-balancer" | "pod-cidr" | "service-range";
  /** E.g. `64512:100`. */
  readonly communities: readonly string[];
  /** E.g. `64512:1:100`. */
  readonly largeCommunities: readonly string[];
  readonly localPreference?: number;
}

/** Routes that are accepted from peers; everything else is refused. */
export interface BgpImports {
  /** Prefixes, and any longer prefix in them, accepted from mesh peers and reflectors. */
  readonly mesh: readonly Cidr[];
  /** The same for external peers. */
  readonly external: readonly Cidr[];
  /** Never accepted, nor anything in them: own prefixes, service ranges, addresses of nodes. */
  readonly refused: readonly Cidr[];
  /** Accept a default route, from external peers only. */
  readonly defaultRoute: boolean;
  /** The kernel's routing table. */
  readonly table: number;
  readonly metric: number;
  /** The most prefixes of one peer; a peer that sends more is shut down until it is restarted. */
  readonly limitPerPeer: number;
}

/** The session with a peer, in figures. */
export interface BgpSessionFigures {
  /** The name of the peer in the plan. */
  readonly peer: string;
  /** As in RFC 4271 (`Established`, `Active` …), or `Down` if BIRD does not try. */
  readonly state: string;
  /** Prefixes accepted from the peer. */
  readonly imported: number;
  /** Prefixes sent to the peer. */
  readonly exported: number;
  /** Updates of the peer that the filters refused since the session began. */
  readonly refusedUpdates: number;
}

/** Returns the name of a session with an address. */
export function peerName(address: IpAddress): string {
  return `peer_${address.replaceAll(/[^0-9a-f]/g, "_")}`;
}
