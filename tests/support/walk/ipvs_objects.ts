/**
 * The objects besides rules that a packet meets where IPVS serves: entries of sets, bound addresses and
 * virtual servers, each with its rendered line. Pure except for its own state.
 */
import { type Cidr, cidrContains, parseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { formatHostPort } from "../../../lib/net/port.ts";
import type { PacketCarrier } from "../../../lib/proxy/packet_explanation.ts";
import type { PacketSide, SetMatch } from "./iptables_rule.ts";
import type { AnyPacket, WalkedPacket } from "./walked_packet.ts";

/** The sets, addresses and virtual servers, as the lines that their tools are given. */
export interface IpvsSource {
  /** Returns the entries of a set; `undefined` = there is no such set. */
  readonly entries: (set: string) => Iterable<string> | undefined;
  /** Returns the line that makes an address one of this node; `undefined` = there is none. */
  readonly address: (address: IpAddress) => string | undefined;
  /**
   * Returns the line of a virtual server and those of its real servers; `undefined` = it does not
   * exist.
   */
  readonly server: (at: ServerAddress) => readonly string[] | undefined;
}

/** The address, port and protocol of a virtual server. */
export type ServerAddress = Pick<WalkedPacket, "destination" | "port" | "protocol">;

/** A virtual server that a packet is for. */
interface MetServer {
  readonly server: PacketCarrier;
  readonly reals: readonly {
    readonly real: PacketCarrier;
    readonly endpoint: { readonly address: IpAddress; readonly port: number };
  }[];
}

/** Entries of a set, ready to be looked up. */
interface KnownSet {
  readonly all: ReadonlySet<string>;
  /** Entries whose last part is a range, the smallest blocks first: they decide. */
  readonly ranges: readonly string[];
}

/** Finds the objects that a packet meets. Each set is read once. */
export class IpvsObjects {
  readonly #source: IpvsSource;
  readonly #known = new Map<string, KnownSet>();

  constructor(source: IpvsSource) {
    this.#source = source;
  }

  /** Returns the entry that holds a packet. Throws an Error if there is no such set. */
  entry(match: SetMatch, packet: AnyPacket): PacketCarrier | undefined {
    const entry = entryOf(this.#set(match.name), match.sides, packet);
    if (entry === undefined) return undefined;
    return { object: "ip set entry", name: match.name, text: `add ${match.name} ${entry}` };
  }

  /**
   * Returns the line that makes an address local, besides the addresses of the node's own
   * interfaces.
   */
  address(address: IpAddress): PacketCarrier | undefined {
    const text = this.#source.address(address);
    return text === undefined ? undefined : { object: "address", name: address, text };
  }

  /** Returns the virtual server of an address and port. Throws an Error for a line that it cannot read. */
  server({ protocol, ...packet }: AnyPacket): MetServer | undefined {
    if (protocol === "ICMP") return undefined;
    const at = { ...packet, protocol };
    const lines = this.#source.server(at);
    if (lines === undefined) return undefined;
    const [text = "", ...reals] = lines;
    const name = `${formatHostPort(at.destination, at.port)}/${at.protocol}`;
    return {
      server: { object: "virtual server", name, text },
      reals: reals.map((text) => {
        const key = realServerOf(text);
        const real = { object: "real server", name: `${name} ${key}`, text };
        return { real, endpoint: endpointOf(key) };
      }),
    };
  }

  #set(name: string): KnownSet {
    const known = this.#known.get(name);
    if (known) return known;
    const entries = this.#source.entries(name);
    if (entries === undefined) throw new Error(`Cannot walk: there is no set '${name}'`);
    const all = new Set(entries);
    const length = (entry: string) => Number(/\/(\d+)/.exec(entry)?.[1]);
    const ranges = [...all].filter((entry) => entry.includes("/"))
      .sort((left, right) => length(right) - length(left));
    const set = { all, ranges };
    this.#known.set(name, set);
    return set;
  }
}

/** Reads an address and port, as `10.0.0.1:8080` or `[fd00::1]:8080`. */
export function endpointOf(
  text: string,
): { readonly address: IpAddress; readonly port: number } {
  const colon = text.lastIndexOf(":");
  const address = parseIpAddress(text.slice(0, colon).replaceAll(/^\[|\]$/g, ""));
  return { address, port: Number(text.slice(colon + 1)) };
}

function entryOf(
  { all, ranges }: KnownSet,
  [first = "dst", second, third]: readonly PacketSide[],
  packet: AnyPacket,
): string | undefined {
  const address = addressOf(first, packet);
  if (second === undefined) {
    const exact = [address, String(packet.port)].find((entry) => all.has(entry));
    if (exact !== undefined || all.has(`${address} nomatch`)) return exact;
    const smallest = ranges.find((entry) => cidrContains(blockOf(entry), address));
    return smallest?.endsWith(" nomatch") ? undefined : smallest;
  }
  const front = `${address},${packet.protocol.toLowerCase()}:${packet.port}`;
  if (third === undefined) return all.has(front) ? front : undefined;
  const other = addressOf(third, packet);
  const exact = `${front},${other}`;
  if (all.has(exact)) return exact;
  return ranges.find((entry) =>
    entry.startsWith(`${front},`) && cidrContains(parseCidr(entry.slice(front.length + 1)), other)
  );
}

function blockOf(entry: string): Cidr {
  return parseCidr(entry.replace(/ nomatch$/, ""));
}

function addressOf(side: PacketSide, { source, destination }: AnyPacket): IpAddress {
  return side === "src" ? source : destination;
}

/** Reads `-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1`. */
function realServerOf(line: string): string {
  const [, key] = /^-a \S+ \S+ -r (\S+) -m -w 1$/.exec(line) ?? [];
  if (key === undefined) throw new Error(`Cannot walk the real server '${line}'`);
  return key;
}
