/**
 * What the userspace backend needs to know of Service addresses: a socket can only be bound to an
 * address that is local to this machine. Owned by the backend; the implementation, with its probing
 * and its batches of `ip`, is in `addresses.ts`.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";

/** An address of a Service that sockets shall be bound to. Each address is wanted once, however many ports use it. */
export interface WantedAddress {
  readonly address: IpAddress;
  /** What it is to the Service. Only a cluster IP has a stand-in: every Service has just one of a family. */
  readonly role: "ClusterIP" | "ExternalIP" | "LoadBalancer";
  /** Whose it is (the first, where several Services share an address): keeps stand-ins the same over restarts. */
  readonly service: ServiceKey;
}

/** Where the sockets for a wanted address go. */
export type AcquiredAddress =
  /** To the address itself: it was local already, or it is now. */
  | { readonly kind: "local" }
  /**
   * To a loopback address in its place. In IPv4 no other Service has it; in IPv6 it is `::1`, which
   * all share. The binder takes the Service's own port there, and where that is taken or not
   * permitted (below 1024 as a plain user) one that the kernel picks.
   */
  | { readonly kind: "standIn"; readonly address: IpAddress }
  /** Nowhere. The reason says what was tried, what the machine answered, and the cure. */
  | { readonly kind: "unavailable"; readonly reason: string };

/** What is known of the demand, so that a way can be chosen: one address each, or a route for the ranges. */
export interface AddressDemand {
  /** Ranges that cluster IPs are taken from; empty when unknown. */
  readonly serviceCidrs: readonly Cidr[];
  /** Distinct addresses that will be acquired. */
  readonly count: number;
}

/** How Service addresses of one IP family become local to this machine. */
export interface LocalAddresses {
  /** Finds out what works here, and adopts what an earlier run left. Removes nothing. */
  start(): Promise<void>;
  /** Tries each way and leaves nothing behind. Works before {@linkcode start}. */
  probe(): Promise<readonly ProbeResult[]>;
  /** The way that is used, as one sentence for the log and for `status`. */
  readonly summary: string;
  /**
   * Tells the demand; called before the first {@linkcode acquire}, and when the ranges or the order
   * of magnitude have changed. Returns whether addresses acquired so far have to be asked for again.
   */
  configure(demand: AddressDemand): Promise<boolean>;
  /**
   * Makes addresses local, all of them in one batch. Asking again for one that is held is allowed,
   * and is how an unavailable one is retried. The result has an entry for each. Throws only when the
   * outcome is unknown.
   */
  acquire(wanted: readonly WantedAddress[]): Promise<ReadonlyMap<IpAddress, AcquiredAddress>>;
  /**
   * Gives addresses back, in one batch: those that we added one by one are removed from the machine
   * at once, the node's own and those under a route stay. Unknown ones are ignored.
   * Returns how many were removed.
   */
  release(addresses: readonly IpAddress[]): Promise<number>;
  /** Removes what {@linkcode start} adopted and nobody has acquired since. Called once, after the first sync. */
  releaseUnclaimed(): Promise<number>;
  /** Whether we put the address on an interface; the node's own addresses are all the others. */
  owns(address: IpAddress): boolean;
  /** Takes away everything that this way, or an earlier run, ever added, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** What {@linkcode cleanup} would take away. */
  previewCleanup(): Promise<CleanupReport>;
}
