import { IP_FAMILIES, type IpAddress, type IpFamily } from "../net/ip_address.ts";
import type { Wildcard } from "../os/wildcard.ts";

/** The addresses of one family. */
export interface FamilyAddresses {
  /** Whether node ports are on every address, including future ones. */
  readonly everywhere: boolean;
  /** The current node port addresses. */
  readonly addresses: readonly IpAddress[];
}

/** The known addresses, and what `[::]` covers. */
interface HealthCheckHostnames {
  readonly families: ReadonlyMap<IpFamily, FamilyAddresses>;
  readonly wildcard: Wildcard;
}

const WILDCARDS: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/**
 * Returns the addresses on which a Service in these families listens for health checks, each once.
 *
 * Upstream has one socket on `0.0.0.0` and one on `[::]` for IPv6 alone. Deno's `[::]` covers IPv4
 * too on most machines; it then serves both, and the client's address shows its family. If only
 * IPv6 has to be served everywhere, `[::]` would also take the IPv4 addresses, so each IPv6 address
 * gets its own socket.
 */
export function healthCheckHostnames(
  has: ReadonlySet<IpFamily>,
  { families, wildcard }: HealthCheckHostnames,
): ReadonlySet<string> {
  const everywhere = IP_FAMILIES.filter((family) => families.get(family)?.everywhere);
  if (wildcard === "both" && everywhere.length === IP_FAMILIES.length) {
    return new Set(has.size > 0 ? [WILDCARDS.IPv6] : []);
  }
  const hostnames = IP_FAMILIES.filter((family) => has.has(family)).flatMap<string>((family) => {
    const mayBeWild = family === "IPv4" || wildcard === "ipv6-only";
    const { addresses = [] } = families.get(family) ?? {};
    return everywhere.includes(family) && mayBeWild ? [WILDCARDS[family]] : addresses;
  });
  return new Set(hostnames);
}
