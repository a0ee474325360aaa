/**
 * What is in a set of nftables.
 *
 * @module
 */
import { cidrContains, hostCidr, tryParseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";

/** Whether a key is in a set, the last part of whose elements may be a range. */
export function hasMember(elements: ReadonlyMap<string, string>, key: string): boolean {
  if (elements.has(key)) return true;
  const at = key.lastIndexOf(" . ");
  const start = at < 0 ? "" : key.slice(0, at + " . ".length);
  const address = key.slice(start.length);
  return [...elements.keys()].some((element) =>
    element.startsWith(start) && element.includes("/") &&
    isInRange(parseIpAddress(address), element.slice(start.length))
  );
}

/** Whether an address is in a range, or is the one address that stands for it. */
export function isInRange(address: IpAddress, range: string): boolean {
  return cidrContains(tryParseCidr(range) ?? hostCidr(parseIpAddress(range)), address);
}
