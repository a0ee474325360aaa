import {
  type IpAddress,
  ipFamilyOf,
  isLoopback,
  parseIpAddress,
} from "../../../lib/net/ip_address.ts";
import type { Network } from "../../../lib/os/network.ts";

/** Addresses of documentation (RFC 5737, RFC 3849): no machine has them. */
const NOBODYS = { IPv4: parseIpAddress("192.0.2.113"), IPv6: parseIpAddress("2001:db8::113") };

/** Whether a socket can be bound to the address. Leaves nothing behind. */
export function canBind(network: Network, address: IpAddress): boolean {
  try {
    network.listenUdp({ hostname: address, port: 0 }).close();
    return true;
  } catch {
    // AddrNotAvailable as a rule; an address family that is switched off has other errors.
    return false;
  }
}

/**
 * Checks whether addresses are local, within one batch. Tries a bind instead of listing the
 * interfaces: a bind takes 20 µs for any number of addresses, while `Deno.networkInterfaces()`
 * blocks for 100 ms and more at 10,000.
 */
export class LocalCheck {
  readonly #network: Network;
  #bindTells: boolean | undefined;
  #ofInterfaces: ReadonlySet<IpAddress> | undefined;

  constructor(network: Network) {
    this.#network = network;
  }

  /** Whether packets to the address end on this machine. */
  isLocal(address: IpAddress): boolean {
    if (isLoopback(address)) return true;
    if (!canBind(this.#network, address)) return false;
    // With net.ipv4.ip_nonlocal_bind=1 (usual with keepalived) every bind succeeds.
    this.#bindTells ??= !canBind(this.#network, NOBODYS[ipFamilyOf(address)]);
    if (this.#bindTells) return true;
    try {
      this.#ofInterfaces ??= new Set(this.#network.interfaceAddresses().map((own) => own.address));
    } catch {
      // No file descriptor is free. The address is added then, and the kernel reports if it exists.
      return false;
    }
    return this.#ofInterfaces.has(address);
  }
}
