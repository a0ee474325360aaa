import type { IpAddress } from "../net/ip_address.ts";

/** A difference between the plan of a node and its machine. */
export interface RoutingDifference {
  /** E.g. `address` or `announcement`. */
  readonly object: string;
  /** E.g. `10.96.0.10/32 to tor_1`. */
  readonly name: string;
  readonly kind: "missing" | "extra" | "altered";
  readonly wanted?: string;
  readonly found?: string;
}

/** The addresses of layer 2, and those of a machine. */
export interface ComparedLayer2 {
  /** Those of Services that this node answers for. */
  readonly owned: ReadonlySet<IpAddress>;
  /** Those of Services that another node answers for, or none. */
  readonly others: Iterable<IpAddress>;
  /** The interfaces of each address of the machine. */
  readonly found: ReadonlyMap<IpAddress, readonly string[]>;
}

/** Interfaces on which modes of Services hold all addresses; they answer no ARP. */
const VIRTUAL: readonly string[] = ["lo", "kube-ipvs0"];

/** Compares the addresses of layer 2 with the interfaces of the machine. */
export function compareLayer2(
  { owned, others, found }: ComparedLayer2,
): readonly RoutingDifference[] {
  const devices = (address: IpAddress) =>
    found.get(address)?.filter((name) => !VIRTUAL.includes(name)) ?? [];
  const missing = [...owned].filter((address) => devices(address).length === 0).sort()
    .map((name): RoutingDifference => ({
      ...{ object: "address", name, kind: "missing" },
      wanted: "on an interface of this node, which answers for it",
    }));
  const extra = [...others].filter((address) => devices(address).length > 0).sort()
    .map((name): RoutingDifference => ({
      ...{ object: "address", name, kind: "extra" },
      found: `on ${devices(name).join(", ")}, but this node does not answer for it`,
    }));
  return [...missing, ...extra];
}
