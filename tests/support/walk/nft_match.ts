/**
 * Matches and look-up keys of nftables rules for one packet. Pure.
 *
 * @module
 */
import { type Cidr, cidrContains } from "../../../lib/net/cidr.ts";
import { addressNumber, type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Key, KeyPart, Statement } from "./nft_rule.ts";
import type { AnyPacket } from "./walked_packet.ts";

/** A packet as a rule sees it, after the rules before. */
export interface SeenPacket extends AnyPacket {
  readonly priority: number;
}

/** A key, and how likely chance makes it. */
interface DrawnKey {
  readonly text: string;
  readonly chance: number;
}

/** A statement that only matches. */
type MatchStatement = Extract<
  Statement,
  { readonly kind: "in-range" | "interface" | "local" | "never" | "ports" | "protocol" }
>;

/** Whether a statement that only matches lets the rule go on. */
export function matches(
  statement: MatchStatement,
  packet: SeenPacket,
  isLocal: (address: IpAddress) => boolean,
): boolean {
  if (statement.kind === "never") return false;
  if (statement.kind === "protocol") return packet.protocol.toLowerCase() === statement.name;
  if (statement.kind === "ports") {
    return packet.protocol !== "ICMP" && statement.first <= packet.port &&
      packet.port <= statement.last;
  }
  if (statement.kind === "interface") {
    const { name, not } = statement;
    const { inInterface = "" } = packet;
    const isWanted = name.endsWith("*")
      ? inInterface.startsWith(name.slice(0, -1))
      : inInterface === name;
    return isWanted !== not;
  }
  const address = packet[statement.part];
  const isMet = statement.kind === "local"
    ? isLocal(address)
    : rangeContains(statement.value, address);
  return isMet !== statement.not;
}

/** Returns every key that chance may make for a packet. */
export function keysOf(key: Key, packet: SeenPacket): readonly DrawnKey[] {
  let keys: readonly DrawnKey[] = [{ text: "", chance: 1 }];
  for (const part of key) {
    const values = valuesOf(part, packet);
    keys = keys.flatMap(({ text, chance }) => {
      const start = text === "" ? "" : `${text} . `;
      return values.map((value) => ({ text: start + value, chance: chance / values.length }));
    });
  }
  return keys;
}

/**
 * Returns the element of a set that contains a key: the key itself, or one whose last part is a
 * range.
 */
export function memberOf(elements: ReadonlyMap<string, string>, key: string): string | undefined {
  if (elements.has(key)) return key;
  const start = key.slice(0, key.lastIndexOf(" ") + 1);
  const last = key.slice(start.length);
  for (const element of elements.keys()) {
    if (!element.startsWith(start)) continue;
    const range = element.slice(start.length);
    const address = tryParseIpAddress(last);
    if (address ? rangeContains(range, address) : isInPorts(last, range)) return element;
  }
  return undefined;
}

/** A priority as elements have it. */
export function numberText(priority: number): string {
  return `0x${priority.toString(16)}`;
}

function valuesOf(part: KeyPart, packet: SeenPacket): readonly string[] {
  switch (part.kind) {
    case "source":
    case "destination":
      return [packet[part.kind]];
    case "protocol":
      return [packet.protocol.toLowerCase()];
    case "port":
      return [String(packet.port)];
    case "priority":
      return [numberText((packet.priority & part.mask) >>> 0)];
    case "random":
      return Array.from({ length: part.count }, (_, index) => String(part.offset + index));
  }
}

function isInPorts(port: string, range: string): boolean {
  const [, first, last] = /^(\d+)-(\d+)$/.exec(range) ?? [];
  return Number(first) <= Number(port) && Number(port) <= Number(last);
}

/** Whether a range in the spelling of `rangesOf()` has an address. Never true across families. */
function rangeContains(range: string, address: IpAddress): boolean {
  if (range.includes("/")) return cidrContains(range as Cidr, address);
  if (range.includes(":") !== address.includes(":")) return false;
  const [first = range, last = first] = range.split("-");
  const number = addressNumber(address);
  return addressNumber(first as IpAddress) <= number &&
    number <= addressNumber(last as IpAddress);
}
