import { parseCidr } from "../../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import type { AnyIpRoutes } from "./anyip_routes.ts";
import { canBind } from "./local_check.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { OwnAddresses } from "./own_addresses.ts";
import { IPV6_STAND_IN, STAND_IN_RANGE } from "./stand_ins.ts";

/** The cure if addresses may not be added. */
export const RIGHTS_CURE = "install iproute2, and run as root or with CAP_NET_ADMIN " +
  "(systemd: AmbientCapabilities=CAP_NET_ADMIN)";

/**
 * Added for a moment: an IPv4 address that 127.0.0.0/8 makes local anyhow, and an IPv6 one of the
 * discard-only prefix (RFC 6666). The routes are for addresses of documentation.
 */
const SCRATCH = {
  IPv4: {
    address: parseIpAddress("127.111.112.113"),
    range: parseCidr("198.51.100.113/32"),
    standIn: parseIpAddress("127.112.0.1"),
  },
  IPv6: {
    address: parseIpAddress("100::6b72"),
    range: parseCidr("2001:db8:6b72::/127"),
    standIn: IPV6_STAND_IN,
  },
};

/**
 * Tries to add an address to `lo` and removes it again. Resolves to why that does not work, or to
 * undefined when it does.
 */
export async function tryOwnAddress(
  own: OwnAddresses,
  family: IpFamily,
): Promise<string | undefined> {
  const { address } = SCRATCH[family];
  try {
    const added = (await own.add([address])).get(address);
    // The kernel checks the right before the address: `exists` shows that it is present.
    if (added) return added.kind === "exists" ? undefined : added.message;
    return (await own.remove([address])).failures.get(address)?.message;
  } catch (error) {
    return messageOf(error);
  }
}

interface AddressProbeInput {
  readonly own: OwnAddresses;
  readonly routes: AnyIpRoutes;
  readonly network: Network;
  /** The file that records additions. */
  readonly recordedIn: string;
  /** The reason why nothing may be added; nothing is tried then. */
  readonly refusal: string | undefined;
}

/** Tries each method and leaves nothing behind. None is required: node ports work without. */
export async function probeAddresses(
  { own, routes, network, recordedIn, refusal }: AddressProbeInput,
  family: IpFamily,
): Promise<ProbeResult[]> {
  const { range, standIn } = SCRATCH[family];
  return [
    probeResult("one address each on lo", {
      refusal: refusal ?? await tryOwnAddress(own, family),
      found: `works; recorded in ${recordedIn}`,
      cure: RIGHTS_CURE,
    }),
    probeResult("local route for the service ranges", {
      refusal: refusal ?? await routes.tryRange(range),
      found: `works; recorded in ${recordedIn}`,
      cure: RIGHTS_CURE,
    }),
    probeResult("loopback addresses in place of cluster IPs", {
      refusal: canBind(network, standIn) ? undefined : `a socket cannot be bound to ${standIn}`,
      found: `works; from ${family === "IPv4" ? STAND_IN_RANGE : IPV6_STAND_IN}`,
      cure: `switch ${family} on for lo`,
    }),
  ];
}

function probeResult(
  feature: string,
  { refusal, found, cure }: { refusal: string | undefined; found: string; cure: string },
): ProbeResult {
  return refusal === undefined
    ? { feature, available: true, required: false, detail: found }
    : { feature, available: false, required: false, detail: refusal, cure };
}
