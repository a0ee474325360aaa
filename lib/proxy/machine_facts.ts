/**
 * What a backend found of the machine that its rules depend on, as a value that can be carried
 * elsewhere: with it another machine renders what this one has.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";

/** Found once by `start()`, or now where that may change. */
export interface MachineFacts {
  /** What the kernel and the tools have, by the mode's own names. */
  readonly features: Readonly<Record<string, boolean>>;
  /** Whether `nf_conntrack_tcp_be_liberal` is set, in a mode whose rules depend on it. */
  readonly beLiberal?: boolean;
  /** Addresses of the node's own interfaces, sorted, in a mode that binds those of Services. */
  readonly nodeAddresses?: readonly IpAddress[];
  /**
   * How what was applied is laid out where the plan leaves that open and the past decides, in the
   * mode's own words: another process that compares or mends it goes by it.
   */
  readonly layout?: readonly string[];
}

/** The features of a mode as they were found; one that nothing was noted of is there. */
export function featuresFound<T extends { readonly [K in keyof T]: boolean }>(
  all: T,
  { features }: MachineFacts,
): T {
  const found = new Map(Object.entries(features));
  const entries = Object.entries<boolean>(all).map(([name, usual]) => [
    name,
    found.get(name) ?? usual,
  ]);
  return Object.fromEntries(entries) as T;
}
