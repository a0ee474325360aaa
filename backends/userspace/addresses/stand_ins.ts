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
 * Returns the IPv4 stand-in of a Service: the address that its key hashes to, or the next one that is
 * not taken.
 */
export function standInOf(
  service: ServiceKey,
  isTaken: (address: IpAddress) => boolean,
): IpAddress {
  const home = hashOf(service) % RANGE_SIZE;
  for (let step = 0; step < RANGE_SIZE; step++) {
    const value = RANGE_START + (home + step) % RANGE_SIZE;
    const bytes = [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];
    const address = parseIpAddress(bytes.join("."));
    if (!isTaken(address)) return address;
  }
  throw new RangeError(
    `Cannot give '${service}' a stand-in: all ${RANGE_SIZE} addresses of ${STAND_IN_RANGE} are taken`,
  );
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

/** With a last mix, since the low bits alone are weak. */
function hashOf(text: string): number {
  let hash = fnv1a(text);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}
