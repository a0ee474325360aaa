import type { AddressRange } from "../net/address_range.ts";
import { addressNumber } from "../net/address_range.ts";
import { type IpAddress, ipFamilyOf } from "../net/ip_address.ts";
import type { LabelSelector } from "../policy/label_selector.ts";

/** How the nodes make an address reachable. */
export type AnnounceMethod = "layer2" | "bgp" | "none";

/** A pool of addresses for Services of type LoadBalancer. Pools do not overlap. */
export interface AddressPool {
  readonly name: string;
  readonly ranges: readonly AddressRange[];
  /** Whether Services get an address of the pool without asking for it. */
  readonly autoAssign: boolean;
  readonly announce: AnnounceMethod;
  /** The namespaces whose Services may use the pool. @default {all} */
  readonly namespaceSelector?: LabelSelector;
  /** The Services that may use the pool. @default {all} */
  readonly serviceSelector?: LabelSelector;
  /** The nodes that may announce the addresses. @default {all} */
  readonly nodeSelector?: LabelSelector;
}

/** Returns the pool that has an address. */
export function poolOf(
  pools: readonly AddressPool[],
  address: IpAddress,
): AddressPool | undefined {
  const [family, number] = [ipFamilyOf(address), addressNumber(address)];
  return pools.find(({ ranges }) =>
    ranges.some((range) => range.family === family && range.first <= number && number <= range.last)
  );
}
