/**
 * The interface for local Service addresses: a socket can only be bound to an address that is
 * local to this machine. The implementation is `addresses.ts`.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";

/** An address of a Service that sockets shall be bound to. Each address is wanted once, however many ports use it. */
export interface WantedAddress {
  readonly address: IpAddress;
  /**
   * The role of the address. Only cluster IPs have stand-ins: a Service has just one in each
   * family.
   */
  readonly role: "ClusterIP" | "ExternalIP" | "LoadBalancer";
  /** The first Service with the address. Keeps stand-ins stable over restarts. */
  readonly service: ServiceKey;
}

/** The place where the sockets of an address are bound. */
export type AcquiredAddress =
  /** To the address itself: it was local already, or it is now. */
  | { readonly kind: "local" }
  /**
   * A loopback address in its place. In IPv4 no other Service has it; in IPv6 it is `::1`, which
   * all share. The binder uses the Service's own port there. If that port is in use or not
   * permitted (below 1024 as a plain user), the kernel chooses one.
   */
  | { readonly kind: "standIn"; readonly address: IpAddress }
  /** Not bound. The reason contains the attempt, the machine's answer, and the cure. */
  | { readonly kind: "unavailable"; readonly reason: string };

/** The demand that determines the method: one address each, or a route for the ranges. */
export interface AddressDemand {
  /** Ranges that cluster IPs are taken from; empty when unknown. */
  readonly serviceCidrs: readonly Cidr[];
  /** Distinct addresses that will be acquired. */
  readonly count: number;
}

/** Makes Service addresses of one IP family local. */
export interface LocalAddresses {
  /** Finds a working method, and adopts the addresses of an earlier run. Removes nothing. */
  start(): Promise<void>;
  /** Tries each method and leaves nothing behind. Works before {@linkcode start}. */
  probe(): Promise<readonly ProbeResult[]>;
  /** The current method as one sentence for the log and for `status`. */
  readonly summary: string;
  /**
   * Reports the demand, before {@linkcode acquire}. Returns whether addresses must be acquired again.
   */
  configure(demand: AddressDemand): Promise<boolean>;
  /**
   * Makes addresses local, all of them in one batch. A repeated request for a held address is
   * allowed, and retries an unavailable one. The result has an entry for each. Throws only if the
   * outcome is unknown.
   */
  acquire(wanted: readonly WantedAddress[]): Promise<ReadonlyMap<IpAddress, AcquiredAddress>>;
  /**
   * Gives addresses back, in one batch: those that we added one by one are removed from the machine
   * at once, the node's own and those under a route stay. Unknown ones are ignored.
   * Returns how many were removed.
   */
  release(addresses: readonly IpAddress[]): Promise<number>;
  /** Removes adopted addresses that were not acquired since. Called once, after the first sync. */
  releaseUnclaimed(): Promise<number>;
  /**
   * Removes adopted addresses that were not acquired, where `isForeign` says so, and returns them.
   */
  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]>;
  /** Whether this process added the address to an interface. */
  owns(address: IpAddress): boolean;
  /** Removes everything that this method or an earlier run added, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** Returns what {@linkcode cleanup} would remove. */
  previewCleanup(): Promise<CleanupReport>;
}
