import { type AddressRange, overlap, rangeOf, tryParseAddressRange } from "../net/address_range.ts";
import { type Cidr, cidrContains } from "../net/cidr.ts";
import {
  addressNumber,
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
} from "../net/ip_address.ts";
import type { LabelSelector } from "../policy/label_selector.ts";
import { SortedList } from "../net/sorted_list.ts";

/** How the nodes make an address reachable. */
export type AnnounceMethod = "layer2" | "bgp" | "none";

/** A pool of addresses for Services of type LoadBalancer. Pools do not overlap. */
export interface AddressPool {
  readonly name: string;
  readonly ranges: readonly AddressRange[];
  /** Whether Services get an address of the pool without asking for it. */
  readonly autoAssign: boolean;
  /** Pools with a lower number are tried first. @default {after all that have one} */
  readonly priority?: number;
  readonly announce: AnnounceMethod;
  /** The namespaces whose Services may use the pool. @default {all} */
  readonly namespaceSelector?: LabelSelector;
  /** The Services that may use the pool. @default {all} */
  readonly serviceSelector?: LabelSelector;
  /** The nodes that may announce the addresses. @default {all} */
  readonly nodeSelector?: LabelSelector;
}

/** The addresses of a pool in one family. */
export function spaceOf({ name }: AddressPool, family: IpFamily): string {
  return `${name} ${family}`;
}

/** Ranges without addresses that a client could reach through a router or a network. */
export const UNUSABLE_RANGES: readonly AddressRange[] = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"],
  ...["::/127", "fe80::/10", "ff00::/8"],
].map((text) => tryParseAddressRange(text)!);

/** The order of ranges that do not overlap: by their ends, so that the one of an address is found. */
export function byEnd(left: AddressRange, right: AddressRange): number {
  return Number(left.family > right.family) - Number(left.family < right.family) ||
    Number(left.last > right.last) - Number(left.last < right.last);
}

/** Returns the pool that has an address. */
export function poolOf(
  pools: readonly AddressPool[],
  address: IpAddress,
): AddressPool | undefined {
  const isIn = containing(address);
  return pools.find(({ ranges }) => ranges.some(isIn));
}

/** Returns what else an address is, so that no Service can have it; `undefined` = nothing. */
export function otherUseOf(
  address: IpAddress,
  { podCidrs, serviceRanges }: {
    readonly podCidrs: readonly Cidr[];
    readonly serviceRanges: readonly Cidr[];
  },
): string | undefined {
  if (UNUSABLE_RANGES.some(containing(address))) return "no network has such an address";
  const uses = [[podCidrs, "pods"], [serviceRanges, "cluster IPs"]] as const;
  for (const [ranges, use] of uses) {
    const found = ranges.find((range) => cidrContains(range, address));
    if (found !== undefined) return `it is in ${found}, a range of ${use}`;
  }
  return undefined;
}

/** Returns whether a range contains an address. */
function containing(address: IpAddress): (range: AddressRange) => boolean {
  const [family, number] = [ipFamilyOf(address), addressNumber(address)];
  return (range) => range.family === family && range.first <= number && number <= range.last;
}

/** How many addresses of a pool are in use. */
export interface PoolUse {
  readonly pool: AddressPool;
  readonly family: IpFamily;
  readonly size: bigint;
  readonly used: number;
}

/** Counts the addresses in use. `addresses` are those of the status of Services, each once. */
export function poolUse(
  pools: readonly AddressPool[],
  addresses: ReadonlySet<IpAddress>,
): readonly PoolUse[] {
  const used = new Map<string, number>();
  // Thousands of addresses in thousands of ranges.
  const owned = new SortedList<AddressRange & { readonly pool?: AddressPool }>(byEnd);
  for (const pool of pools) for (const range of pool.ranges) owned.add({ ...range, pool });
  for (const address of addresses) {
    const [family, first] = [ipFamilyOf(address), addressNumber(address)];
    const found = owned.items[owned.indexOf({ family, first, last: first })];
    if (!found?.pool || found.family !== family || found.first > first) continue;
    const key = spaceOf(found.pool, family);
    used.set(key, (used.get(key) ?? 0) + 1);
  }
  return pools.flatMap((pool) =>
    IP_FAMILIES.flatMap((family) => {
      const ranges = pool.ranges.filter((range) => range.family === family);
      const size = ranges.reduce((sum, { first, last }) => sum + last - first + 1n, 0n);
      return size === 0n
        ? []
        : [{ pool, family, size, used: used.get(spaceOf(pool, family)) ?? 0 }];
    })
  );
}

/**
 * Returns the pools without ranges that have another use, such as those of cluster IPs and pods: an
 * address of them would belong to two owners. `problems` has a sentence for each overlap.
 */
export function poolsWithout(
  pools: readonly AddressPool[],
  taken: ReadonlyMap<Cidr, string>,
): { readonly pools: readonly AddressPool[]; readonly problems: readonly string[] } {
  const problems: string[] = [];
  const remaining = pools.map((pool) => {
    // Thousands of Nodes may have ranges in one pool.
    const free = new SortedList<AddressRange>(byEnd);
    for (const range of pool.ranges) free.add(range);
    for (const [cidr, use] of taken) {
      const block = rangeOf(cidr);
      const at = free.indexOf({ ...block, last: block.first });
      const found: AddressRange[] = [];
      for (let index = at; index < free.items.length; index++) {
        if (!overlap(free.items[index]!, block)) break;
        found.push(free.items[index]!);
      }
      if (found.length === 0) continue;
      problems.push(`Pool '${pool.name}' has addresses of ${cidr}, ${use}; they are not assigned`);
      for (const range of found) {
        free.delete(range);
        for (const part of rest(range, block)) free.add(part);
      }
    }
    return { ...pool, ranges: free.items };
  });
  return { pools: remaining, problems };
}

function rest({ family, first, last }: AddressRange, block: AddressRange): readonly AddressRange[] {
  return [
    ...(first < block.first ? [{ family, first, last: block.first - 1n }] : []),
    ...(last > block.last ? [{ family, first: block.last + 1n, last }] : []),
  ];
}
