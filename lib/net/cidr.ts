/**
 * CIDR blocks as canonical text.
 *
 * @module
 */
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  tryParseIpAddress,
} from "./ip_address.ts";

/**
 * A CIDR block in canonical text: network address (host bits zero) and prefix length.
 * Only {@linkcode parseCidr} makes one.
 */
export type Cidr = string & { readonly __brand: "Cidr" };

/** Parses a CIDR block; host bits are cleared. Throws a SyntaxError that quotes the text. */
export function parseCidr(text: string): Cidr {
  const parsed = tryParseCidr(text);
  if (parsed === undefined) {
    throw new SyntaxError(
      `Cannot parse CIDR '${text}': expected an IP address, a slash and a prefix length`,
    );
  }
  return parsed;
}

/** Like {@linkcode parseCidr}, but returns `undefined` instead of throwing. */
export function tryParseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf("/");
  const address = tryParseIpAddress(slash < 0 ? "" : text.slice(0, slash));
  const digits = text.slice(slash + 1);
  if (address === undefined || !/^\d{1,3}$/.test(digits)) return undefined;
  // An IPv4-mapped address has become IPv4, but its length counts bits of IPv6.
  if (text.includes(":") !== address.includes(":")) return undefined;
  const length = Number(digits);
  const hostBits = (address.includes(":") ? 128 : 32) - length;
  if (hostBits < 0) return undefined;
  if (hostBits === 0) return `${address}/${length}` as Cidr;
  const number = addressNumber(address) >> BigInt(hostBits) << BigInt(hostBits);
  return `${addressAt(number, ipFamilyOf(address))}/${length}` as Cidr;
}

/** Returns the block that contains only one address. */
export function hostCidr(address: IpAddress): Cidr {
  return `${address}/${address.includes(":") ? 128 : 32}` as Cidr;
}

/** The family of a block. */
export function cidrFamilyOf(cidr: Cidr): IpFamily {
  return cidr.includes(":") ? "IPv6" : "IPv4";
}

/** The prefix length of a block. */
export function prefixLengthOf(cidr: Cidr): number {
  return Number(cidr.slice(cidr.indexOf("/") + 1));
}

/** Whether a block contains an address. Never true across families. */
export function cidrContains(cidr: Cidr, address: IpAddress): boolean {
  if (cidr.includes(":") !== address.includes(":")) return false;
  const slash = cidr.indexOf("/");
  const network = addressNumber(cidr.slice(0, slash) as IpAddress);
  const hostBits = BigInt((cidr.includes(":") ? 128 : 32) - Number(cidr.slice(slash + 1)));
  return network >> hostBits === addressNumber(address) >> hostBits;
}
