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

/** Codes of characters. */
const [DOT, ZERO] = [46, 48];

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

/** The number of an IPv4 address, without anything in between that would have to be freed. */
export function ipv4Number(address: IpAddress): number {
  let [number, octet] = [0, 0];
  for (let index = 0; index < address.length; index++) {
    const code = address.charCodeAt(index);
    if (code !== DOT) octet = octet * 10 + code - ZERO;
    else [number, octet] = [number * 256 + octet, 0];
  }
  return number * 256 + octet;
}

/** The number of an address in its family: its bits, the first one highest. */
export function addressNumber(address: IpAddress): bigint {
  if (!address.includes(":")) return BigInt(ipv4Number(address));
  const [front = "", back] = address.split("::");
  const groups = front === "" ? [] : front.split(":");
  const after = back ? back.split(":") : [];
  while (back !== undefined && groups.length + after.length < 8) groups.push("0");
  const digits = [...groups, ...after].map((group) => group.padStart(4, "0"));
  return BigInt(`0x${digits.join("")}`);
}

/** The address with a number; the inverse of {@linkcode addressNumber}. */
export function addressAt(number: bigint, family: IpFamily): IpAddress {
  if (family === "IPv4") {
    const value = Number(number);
    return [24, 16, 8, 0].map((shift) => value >>> shift & 255).join(".") as IpAddress;
  }
  const digits = number.toString(16).padStart(32, "0");
  const groups = digits.match(/.{4}/g)!.map((group) => group.replace(/^0{1,3}/, ""));
  // RFC 5952: the first of the longest runs of zeros is left out. The library takes ten times as long.
  const [longest = ""] = (groups.join(":").match(/(?<![^:])0(?::0)+(?![^:])/g) ?? [])
    .sort((left, right) => right.length - left.length);
  if (longest === "") return groups.join(":") as IpAddress;
  const text = `:${groups.join(":")}:`.replace(`:${longest}:`, "::");
  return text.replace(/^:(?!:)/, "").replace(/(?<!:):$/, "") as IpAddress;
}
