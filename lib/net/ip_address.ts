/**
 * IP addresses as canonical text.
 *
 * @module
 */
import ipaddr from "ipaddr.js";

/**
 * An IP address in canonical text: dotted decimal without leading zeros, or RFC 5952. A branded
 * string is equal by `===`, works as a `Map` key, prints as itself and costs nothing.
 * Only {@linkcode parseIpAddress} makes one.
 */
export type IpAddress = string & { readonly __brand: "IpAddress" };

/** The two IP families, spelt as in `Service.spec.ipFamilies`. */
export type IpFamily = "IPv4" | "IPv6";

/** Both families, in the order in which they are handled. */
export const IP_FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];

/** The usual form of an address: such a text is its own canonical form. */
const CANONICAL_IPV4 =
  /^(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$/;
const DOTTED = /^\d+\.\d+\.\d+\.\d+$/;

/**
 * Parses an IP address.
 *
 * Leading zeros of an IPv4 octet are read as decimal, as Kubernetes does for objects that older
 * API servers let in (its "sloppy" parser), never as octal. An IPv4-mapped IPv6 address
 * (`::ffff:10.0.0.1`) is the IPv4 address. Throws a SyntaxError for anything else, zones included.
 */
export function parseIpAddress(text: string): IpAddress {
  const parsed = tryParseIpAddress(text);
  if (parsed === undefined) {
    throw new SyntaxError(`Cannot parse IP address '${text}': expected IPv4 or IPv6 text`);
  }
  return parsed;
}

/** Like {@linkcode parseIpAddress}, but returns `undefined` instead of throwing. */
export function tryParseIpAddress(text: string): IpAddress | undefined {
  if (CANONICAL_IPV4.test(text)) return text as IpAddress;
  if (DOTTED.test(text)) {
    const octets = text.split(".").map(Number);
    return octets.every((octet) => octet <= 255) ? octets.join(".") as IpAddress : undefined;
  }
  if (!text.includes(":") || text.includes("%") || !ipaddr.IPv6.isValid(text)) return undefined;
  const address = ipaddr.IPv6.parse(text);
  const canonical = address.isIPv4MappedAddress()
    ? address.toIPv4Address().toString()
    : address.toRFC5952String();
  return canonical as IpAddress;
}

/** The family of an address. */
export function ipFamilyOf(address: IpAddress): IpFamily {
  return address.includes(":") ? "IPv6" : "IPv4";
}

/** Whether an address is a loopback one (127.0.0.0/8 or ::1). */
export function isLoopback(address: IpAddress): boolean {
  return address === "::1" || address.startsWith("127.");
}

/** Whether an address is the unspecified one (0.0.0.0 or ::). */
export function isUnspecified(address: IpAddress): boolean {
  return address === "0.0.0.0" || address === "::";
}
