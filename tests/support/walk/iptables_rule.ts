/**
 * Parses rules of iptables in the forms that the modes of Services and the data plane of
 * NetworkPolicy write. A new kind of rule has to be added here. Pure.
 */
import {
  type Cidr,
  cidrFamilyOf,
  hostCidr,
  networkOf,
  parseCidr,
  prefixLengthOf,
} from "../../../lib/net/cidr.ts";
import { splitWords } from "../../../backends/netfilter/iptables/iptables_objects.ts";
import { addressNumber, type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";

/** A value that may be negated. */
interface Negatable<T> {
  readonly value: T;
  readonly not: boolean;
}

/** A side of a packet, in the words of an ip set. */
export type PacketSide = "dst" | "src";

/** The set that has to hold a packet, and the sides of the packet that are looked up. */
export interface SetMatch {
  readonly name: string;
  readonly sides: readonly PacketSide[];
  /** Whether the set has to lack the packet. */
  readonly not?: true;
}

/** The bits of an address that are compared. */
interface AddressMatch {
  readonly bits: bigint;
  readonly mask: bigint;
}

/** Whether an address has these bits. */
export function hasBits({ bits, mask }: AddressMatch, address: IpAddress): boolean {
  return (addressNumber(address) & mask) === bits;
}

/** A rule, read. */
export interface WalkedRule {
  readonly source?: Negatable<AddressMatch>;
  readonly destination?: Negatable<AddressMatch>;
  /** The destination before it was rewritten. */
  readonly originalDestination?: Cidr;
  readonly inInterface?: Negatable<string>;
  readonly protocol?: string;
  /** Any of these ranges. */
  readonly ports?: readonly (readonly [first: number, last: number])[];
  readonly states?: readonly Negatable<readonly string[]>[];
  readonly mark?: Negatable<number>;
  /** The side that has to be an address of the node. */
  readonly local?: "destination" | "source";
  /** The chance of a match. */
  readonly probability?: number;
  readonly set?: SetMatch;
  /** No packet of a walk is one of these. */
  readonly isNever?: true;
  readonly recent?: { readonly list: string; readonly action: "set" | "update" };
  readonly target: readonly string[];
  readonly isGoto: boolean;
}

/** The part of a rule that was read so far. */
type Draft = { -readonly [K in keyof WalkedRule]?: WalkedRule[K] };

/** Reads words one after the other. */
class Words {
  readonly #words: readonly string[];
  #at = 0;

  constructor(words: readonly string[]) {
    this.#words = words;
  }

  get isDone(): boolean {
    return this.#at >= this.#words.length;
  }

  next(): string {
    const word = this.#words[this.#at++];
    if (word === undefined) throw new SyntaxError("the rule ends too early");
    return word;
  }

  rest(): readonly string[] {
    const rest = this.#words.slice(this.#at);
    this.#at = this.#words.length;
    return rest;
  }

  /** Takes the next words, which have to be these; `*` stands for any one, and is returned. */
  expect(...pattern: readonly string[]): readonly string[] {
    return pattern.flatMap((expected) => {
      const word = this.next();
      if (expected === "*") return [word];
      if (word !== expected) throw new SyntaxError(`'${word}' where '${expected}' was expected`);
      return [];
    });
  }
}

/** Reads a rule without its chain. Throws a SyntaxError for whatever it does not know. */
export function parseIptablesRule(text: string): WalkedRule {
  try {
    const words = new Words(splitWords(text));
    const draft: Draft = {};
    while (!words.isDone) readPart(words, draft);
    // Whether a limit lets one packet through is unknown; for a log it does not matter.
    if (/ -m limit /.test(` ${text}`) && draft.target?.[0] !== "NFLOG") {
      throw new SyntaxError("the match 'limit' is known for logs only");
    }
    if (draft.isNever && !/ -g KUBE-| --ctstate DNAT /.test(text)) {
      throw new SyntaxError("an interface at which packets leave is known for NetworkPolicy only");
    }
    return { ...draft, target: draft.target ?? [], isGoto: draft.isGoto ?? false };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new SyntaxError(`Cannot read the rule '${text}': ${reason}`, { cause: error });
  }
}

function readPart(words: Words, draft: Draft): void {
  let word = words.next();
  const not = word === "!";
  if (not) word = words.next();
  switch (word) {
    case "-s":
      draft.source = { value: matchOf(words.next()), not };
      return;
    case "-d":
      draft.destination = { value: matchOf(words.next()), not };
      return;
    case "-i":
      draft.inInterface = { value: words.next(), not };
      return;
  }
  if (not) throw new SyntaxError(`'! ${word}' is not known`);
  switch (word) {
    case "-p":
      draft.protocol = words.next();
      return;
    // Of the match conntrack, after its states.
    case "--ctorigdst":
      draft.originalDestination = blockOf(words.next());
      return;
    case "-o":
      words.next();
      draft.isNever = true;
      return;
    case "-m":
      readExtension(words, draft);
      return;
    case "-j":
    case "-g":
      draft.isGoto = word === "-g";
      draft.target = words.rest();
      return;
    default:
      throw new SyntaxError(`'${word}' is not known`);
  }
}

function readExtension(words: Words, draft: Draft): void {
  const name = words.next();
  switch (name) {
    case "tcp":
    case "udp":
    case "sctp":
      readProtocol(name, words, draft);
      return;
    case "multiport":
      draft.ports = words.expect("--dports", "*").flatMap(portsOf);
      return;
    case "limit":
      words.expect("--limit", "*");
      return;
    // With the protocol of neighbour discovery, which no walked packet has.
    case "icmp6":
      words.expect("--icmpv6-type", "*");
      return;
    case "hl":
      words.expect("--hl-eq", "*");
      return;
    case "comment":
      words.expect("--comment", "*");
      return;
    case "nfacct":
      words.expect("--nfacct-name", "*");
      return;
    case "conntrack":
    case "mark":
      readNegatable(name, words, draft);
      return;
    case "addrtype": {
      const [side, type] = words.expect("*", "*");
      if (draft.isNever && type === "BROADCAST,MULTICAST") return;
      if (type !== "LOCAL") throw new SyntaxError(`'${type}' of addrtype`);
      if (side !== "--src-type" && side !== "--dst-type") throw new SyntaxError(`'${side}'`);
      draft.local = side === "--src-type" ? "source" : "destination";
      return;
    }
    case "statistic": {
      const [probability] = words.expect("--mode", "random", "--probability", "*");
      draft.probability = Number(probability);
      return;
    }
    case "set":
      draft.set = readSet(words);
      return;
    case "recent":
      draft.recent = readRecent(words);
      return;
    default:
      throw new SyntaxError(`the match '${name}' is not known`);
  }
}

function readProtocol(name: "sctp" | "tcp" | "udp", words: Words, draft: Draft): void {
  const option = words.next();
  if (option === "--tcp-flags") {
    // The first packet of a TCP connection always has these flags.
    words.expect("FIN,SYN,RST,ACK", "SYN");
    return;
  }
  if (option !== "-p") throw new SyntaxError(`'${option}' of ${name}`);
  const [ports = ""] = words.expect(name, "--dport", "*");
  draft.protocol = name;
  draft.ports = portsOf(ports);
}

function readNegatable(name: "conntrack" | "mark", words: Words, draft: Draft): void {
  const flag = name === "mark" ? "--mark" : "--ctstate";
  const first = words.next();
  const not = first === "!";
  if ((not ? words.next() : first) !== flag) throw new SyntaxError(`'${flag}' was expected`);
  const value = words.next();
  if (name === "conntrack") {
    draft.states = [...draft.states ?? [], { value: value.split(","), not }];
    return;
  }
  const [mark, mask] = value.split("/").map(Number);
  if (mark === undefined || mark !== mask) throw new SyntaxError(`'${value}' as a mark`);
  draft.mark = { value: mark, not };
}

function readSet(words: Words): SetMatch {
  const first = words.next();
  const isNegated = first === "!";
  if ((isNegated ? words.next() : first) !== "--match-set") {
    throw new SyntaxError(`'${first}' of set`);
  }
  const [name = "", sides = ""] = words.expect("*", "*");
  return {
    name,
    ...(isNegated && { not: true }),
    sides: sides.split(",").map((side) => {
      if (side !== "dst" && side !== "src") throw new SyntaxError(`'${side}' of set`);
      return side;
    }),
  };
}

function readRecent(words: Words): NonNullable<WalkedRule["recent"]> {
  const [list = "", action] = words.expect("--name", "*", "*");
  if (action === "--set") return { list, action: "set" };
  if (action !== "--update") throw new SyntaxError(`'${action}' of recent`);
  words.expect("--seconds", "*", "--reap");
  return { list, action: "update" };
}

function portsOf(text: string): readonly (readonly [first: number, last: number])[] {
  return text.split(",").map((range) => {
    const [first = NaN, last = first] = range.split(":").map(Number);
    return [first, last];
  });
}

function blockOf(text: string): Cidr {
  return text.includes("/") ? parseCidr(text) : hostCidr(parseIpAddress(text));
}

/** The mask may be an address. */
function matchOf(text: string): AddressMatch {
  const [address = "", mask = ""] = text.split("/");
  if (/[.:]/.test(mask)) {
    const [bits, masked] = [address, mask].map((part) => addressNumber(parseIpAddress(part)));
    return { bits: bits!, mask: masked! };
  }
  const block = blockOf(text);
  const width = cidrFamilyOf(block) === "IPv4" ? 32 : 128;
  const rest = BigInt(width - prefixLengthOf(block));
  const all = (1n << BigInt(width)) - 1n;
  return { bits: addressNumber(networkOf(block)), mask: all >> rest << rest };
}
