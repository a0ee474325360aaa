import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { IPV6_STAND_IN, STAND_IN_RANGE } from "./stand_ins.ts";

/**
 * The methods that the user permits: the best available, a single one, or no change to the machine.
 */
export type AddressMode = "auto" | "each" | "anyip" | "none";

/**
 * The way in which an address becomes local: `each` adds it to `lo`; `anyip` uses a local route for
 * the service ranges, and adds only other addresses to `lo`; `standIn` uses a loopback address
 * instead.
 */
export type AddressMethod = "each" | "anyip" | "standIn";

/** The inputs of the choice. */
export interface AddressMethodInput {
  readonly mode: AddressMode;
  /** Whether this process may add addresses to `lo`. */
  readonly permitted: boolean;
  /** Distinct addresses that are wanted. */
  readonly count: number;
  /** Whether the ranges of cluster IPs are known. */
  readonly rangesKnown: boolean;
  /** The current method. */
  readonly current: AddressMethod;
}

/** More addresses than this are better served by a route: `ip addr` and every look at `lo` get slow. */
const ANYIP_ABOVE = 1_000;
/** Fewer than this go back to one each. Well below, so that a count near the bound does not flap. */
const EACH_BELOW = 500;

/**
 * Returns the method to use. `each` is preferred if the number of addresses allows it, since a
 * route makes every address of the range local, even unallocated ones, on every port with a
 * wildcard listener of the host.
 */
export function chooseAddressMethod(input: AddressMethodInput): AddressMethod {
  const { mode, permitted, count, rangesKnown, current } = input;
  if (mode === "none" || !permitted) return "standIn";
  if (mode === "each" || !rangesKnown) return "each";
  if (mode === "anyip") return "anyip";
  return count > (current === "anyip" ? EACH_BELOW - 1 : ANYIP_ABOVE) ? "anyip" : "each";
}

/** The risk of `anyip` for the administrator. */
export const ANYIP_WARNING =
  "every program of this host that listens on a wildcard address (sshd on 0.0.0.0:22) answers on " +
  "all addresses of the range; packets from a pod to a Service leave with the node's address, " +
  "which passes NetworkPolicies that allow nodes";

/** The details of {@linkcode describeAddressMethod}. */
interface AddressMethodFacts {
  readonly family: IpFamily;
  /** The reason why nothing may be added to the machine. */
  readonly refusal: string | undefined;
  /** Addresses that we have on `lo`. */
  readonly ownCount: number;
  /** Ranges that are local by a route of this process. */
  readonly ranges: readonly Cidr[];
}

/** The current method as one sentence for the log and for `status`. */
export function describeAddressMethod(way: AddressMethod, facts: AddressMethodFacts): string {
  const { family, refusal, ownCount, ranges } = facts;
  const each = `${ownCount} ${family} addresses added to lo, one by one`;
  if (way === "each") return each;
  if (way === "anyip") {
    return `local route for ${ranges.join(", ") || "no range"}; ${each}; ${ANYIP_WARNING}`;
  }
  const standIn = family === "IPv4" ? `an address of ${STAND_IN_RANGE}` : IPV6_STAND_IN;
  return `${standIn} in place of each cluster IP that is not local; nothing is added to this host` +
    (refusal === undefined ? "" : `: ${refusal}`);
}
