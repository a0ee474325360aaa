import type { IpAddress } from "../net/ip_address.ts";

/** The addresses of one IP family that this node answers for on its links. Deeply read-only. */
export interface Layer2Plan {
  readonly addresses: ReadonlyMap<IpAddress, Layer2Address>;
}

/** An address that other machines reach by ARP or neighbour discovery. */
export interface Layer2Address {
  /** Interfaces that may answer, best first. @default {the one whose network has the address} */
  readonly interfaces?: readonly string[];
}

/** The difference between two plans. */
export interface Layer2PlanChanges {
  /** Addresses that were added, removed or changed. */
  readonly addresses: ReadonlySet<IpAddress>;
}
