import type { Cidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort, type Port, type Protocol } from "../../../lib/net/port.ts";
import { fnv1a } from "../../../lib/net/text_hash.ts";
import type { ServiceKey } from "../../../lib/proxy/service_port_name.ts";

/** The range of IPv4 stand-ins: a part of 127.0.0.0/8 without other known users. */
export const STAND_IN_RANGE = "127.112.0.0/12" as Cidr;

/** The only loopback address of IPv6, shared by all stand-ins of that family. */
export const IPV6_STAND_IN: IpAddress = parseIpAddress("::1");

const RANGE_START = 0x7f700000;
const RANGE_SIZE = 1 << 20;
/** Below the kernel's range for client ports (32768 and up) to avoid collisions. */
const PORT_START = 20_000;
const PORT_COUNT = 32_768 - PORT_START;
const STAND_IN_ATTEMPTS = 16;

/**
 * Gives each Service its own IPv4 stand-in: the address that its key hashes to, or the next free
 * one. The same calls in the same order return the same addresses; {@linkcode entries} of an
 * earlier run keep them stable in any order.
 */
export class StandIns {
  readonly #byService = new Map<ServiceKey, IpAddress>();
  readonly #taken = new Set<IpAddress>();
  /** Whether {@linkcode entries} changed since they were recorded. */
  isChanged = false;

  constructor(known: Iterable<readonly [ServiceKey, IpAddress]> = []) {
    for (const [service, address] of known) {
      if (this.#taken.has(address)) continue;
      this.#byService.set(service, address);
      this.#taken.add(address);
    }
  }

  /**
   * Returns the stand-in of a Service. `isUsed` excludes addresses in use, such as cluster IPs in
   * 127/8.
   */
  allocate(service: ServiceKey, isUsed: (address: IpAddress) => boolean): IpAddress {
    const known = this.#byService.get(service);
    if (known !== undefined && !isUsed(known)) return known;
    this.release(service);
    const home = hashOf(service) % RANGE_SIZE;
    for (let step = 0; step < RANGE_SIZE; step++) {
      const address = addressAt((home + step) % RANGE_SIZE);
      if (this.#taken.has(address) || isUsed(address)) continue;
      this.#byService.set(service, address);
      this.#taken.add(address);
      this.isChanged = true;
      return address;
    }
    throw new RangeError(
      `Cannot give '${service}' a stand-in: all ${RANGE_SIZE} addresses of ${STAND_IN_RANGE} are taken`,
    );
  }

  release(service: ServiceKey): void {
    const address = this.#byService.get(service);
    if (address === undefined) return;
    this.#byService.delete(service);
    this.#taken.delete(address);
    this.isChanged = true;
  }

  /** Every Service and its stand-in: a view, not a copy. */
  get entries(): ReadonlyMap<ServiceKey, IpAddress> {
    return this.#byService;
  }
}

/**
 * Ports for a stand-in: the Service's port first, then alternatives if it is taken or not permitted.
 * They are always the same (20000 to 32767), so that clients find them after a restart.
 */
export function* standInPorts(
  service: ServiceKey,
  { port, protocol }: { readonly port: Port; readonly protocol: Protocol },
): Iterable<Port> {
  yield port;
  const first = hashOf(`${service}:${port}/${protocol}`);
  for (let attempt = 0; attempt < STAND_IN_ATTEMPTS; attempt++) {
    yield parsePort(PORT_START + (first + attempt) % PORT_COUNT);
  }
}

function addressAt(index: number): IpAddress {
  const value = RANGE_START + index;
  return parseIpAddress(
    `${value >>> 24}.${(value >>> 16) & 255}.${(value >>> 8) & 255}.${value & 255}`,
  );
}

/** With a last mix, since the low bits alone are weak. */
function hashOf(text: string): number {
  let hash = fnv1a(text);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}
