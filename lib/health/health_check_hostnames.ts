/**
 * On which addresses health check node ports listen.
 *
 * @module
 */
import { IP_FAMILIES, type IpAddress, type IpFamily } from "../net/ip_address.ts";
import type { Wildcard } from "../os/wildcard.ts";

/** What is known of one family. */
export interface FamilyAddresses {
  /** Whether node ports are on every address, also on those that come later. */
  readonly everywhere: boolean;
  /** The node port addresses at this moment. */
  readonly addresses: readonly IpAddress[];
}

/** Which addresses there are, and what `[::]` takes. */
interface HealthCheckHostnames {
  readonly families: ReadonlyMap<IpFamily, FamilyAddresses>;
  readonly wildcard: Wildcard;
}

const WILDCARDS: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/**
 * The addresses to listen on for a Service that these families have, each once.
 *
 * Upstream has one socket on `0.0.0.0` and one on `[::]` for IPv6 alone. Deno's `[::]` takes IPv4 too
 * on most machines; then it stands for both, and who calls is told by the address he calls from.
 * It would take the IPv4 addresses away, too, where only IPv6 is to be everywhere: there each IPv6
 * address gets a socket of its own.
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
