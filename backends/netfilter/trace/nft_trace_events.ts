/**
 * Reads `nft monitor trace` (checked with 1.0.6, which has no JSON for it), and follows the marked
 * packet in it. Pure except for its own state.
 *
 * @module
 */
import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { PacketHeader, TraceStep } from "../../../lib/proxy/packet_trace.ts";

const PREFIX = "kube-relay-trace-";

/** The name of the table that marks the packet of a trace, without the family. */
export function markTableName(id: string): string {
  return `${PREFIX}${id}`;
}

/** The content of one line of `nft monitor trace`. */
type TraceEvent =
  & {
    /** Number of the packet: it may get another one when it comes in again. */
    readonly id: string;
    /** With its family. */
    readonly table: string;
    readonly chain: string;
  }
  & (
    | { readonly kind: "packet"; readonly header: PacketHeader }
    | {
      readonly kind: "rule";
      readonly rule: string;
      readonly verdict: string;
      /** Number of the rule in its table. */
      readonly handle?: number;
    }
    | { readonly kind: "policy"; readonly verdict: string }
  );

const LINE = /^trace id ([0-9a-f]+) (\w+) (\S+) (\S+) (packet:|rule|unknown|policy|verdict) ?(.*)$/;
/** Nothing in a rule's own text ends in this. */
const RULE = /^(.*) \(verdict ([^()]*)\)\s*$/;

/** At the end of a rule's text, for `nft -a`. */
const HANDLE = /^(.*) # handle (\d{1,9})$/;
/** A rule that the tool does not have: only its number is known. */
const UNKNOWN = /^(rule handle (\d{1,9}))$/;

/** Parses one line; `undefined` if it is not about a packet. */
export function parseNftTraceLine(line: string): TraceEvent | undefined {
  const [, id, family, table, chain, word, rest] = LINE.exec(line) ?? [];
  if (id === undefined || word === undefined || rest === undefined) return undefined;
  const place = { id, table: `${family} ${table}`, chain: chain! };
  switch (word) {
    case "packet:": {
      const header = headerOf(rest);
      return header && { ...place, kind: "packet", header };
    }
    case "policy":
      return { ...place, kind: "policy", verdict: rest.split(" ")[0] ?? "" };
    case "verdict":
      return { ...place, kind: "policy", verdict: rest.trim() };
    default: {
      const [, rule, verdict] = RULE.exec(rest) ?? [];
      if (rule === undefined || verdict === undefined) return undefined;
      const [, text = rule, handle] = (word === "unknown" ? UNKNOWN : HANDLE).exec(rule) ?? [];
      return {
        ...place,
        kind: "rule",
        rule: withoutCounters(text),
        verdict,
        ...(handle !== undefined && { handle: Number(handle) }),
      };
    }
  }
}

/** A rule's text without its counters: they are of the moment at which nft read the rules. */
export function withoutCounters(rule: string): string {
  return rule.replaceAll(/\bcounter packets \d+ bytes \d+ ?/g, "").replaceAll(/ {2,}/g, " ").trim();
}

/** The header; `undefined` where it has no addresses. */
function headerOf(text: string): PacketHeader | undefined {
  const field = (name: RegExp) => name.exec(text)?.[1];
  const source = tryParseIpAddress(field(/\bip6? saddr (\S+)/) ?? "");
  const destination = tryParseIpAddress(field(/\bip6? daddr (\S+)/) ?? "");
  if (source === undefined || destination === undefined) return undefined;
  const numbers = {
    sourcePort: field(/\b(?:tcp|udp|sctp) sport (\d{1,10})\b/),
    destinationPort: field(/\b(?:tcp|udp|sctp) dport (\d{1,10})\b/),
    id: field(/\bip id (\d{1,10})\b/),
  };
  const names = { arrivedBy: field(/\biif "([^"]*)"/), leavesBy: field(/\boif "([^"]*)"/) };
  return {
    ...{ source, destination },
    ...Object.fromEntries(
      Object.entries(numbers).filter(([, value]) => value !== undefined)
        .map(([name, value]) => [name, Number(value)]),
    ),
    ...Object.fromEntries(Object.entries(names).filter(([, value]) => value)),
  };
}

interface FollowerOptions {
  /** Name of the marking table, without its family. */
  readonly table: string;
  /** From and to this port go the packets by which is seen whether the tool watches already. */
  readonly beaconPort: number;
  readonly onBeacon: () => void;
  readonly onSeen: () => void;
}

/** A step, and the number of its rule where that is known. */
export interface FollowedStep extends TraceStep {
  readonly handle?: number;
}

/** Marked packets are few, but a machine with other traces may report many. */
const MOST_IDS = 4096;
/** A packet in a routing loop is not followed forever. */
const MOST_STEPS = 2000;

/** Takes events in the order in which they were printed. */
export class PacketFollower {
  readonly #options: FollowerOptions;
  readonly #headers = new Map<string, PacketHeader>();
  readonly #own = new Set<string>();
  readonly #steps: FollowedStep[] = [];
  #first: PacketHeader | undefined;
  #lastHeader: PacketHeader | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  get steps(): readonly FollowedStep[] {
    return this.#steps;
  }

  /** The packet as it was when it was marked. */
  get header(): PacketHeader | undefined {
    return this.#first;
  }

  /** Takes an event. Returns whether it is one of the packet's. */
  take(event: TraceEvent): boolean {
    if (event.kind === "packet") return this.#takeHeader(event.id, event.header);
    const isOwnTable = tableName(event.table) === this.#options.table;
    if (isOwnTable && event.kind === "rule" && event.verdict === "continue") this.#mark(event.id);
    if (!this.#own.has(event.id)) return false;
    if (tableName(event.table).startsWith(PREFIX) || this.#steps.length >= MOST_STEPS) return true;
    this.#steps.push(this.#stepOf(event));
    return true;
  }

  #takeHeader(id: string, header: PacketHeader): boolean {
    if (this.#headers.size >= MOST_IDS) this.#headers.clear();
    this.#headers.set(id, header);
    // A packet from this machine to itself gets another number when it arrives.
    if (this.#first && !this.#own.has(id) && isSame(header, this.#lastHeader ?? this.#first)) {
      this.#own.add(id);
    }
    return this.#own.has(id);
  }

  #mark(id: string): void {
    const { beaconPort, onBeacon, onSeen } = this.#options;
    const header = this.#headers.get(id);
    if (header?.sourcePort === beaconPort && header.destinationPort === beaconPort) {
      return onBeacon();
    }
    if (this.#first !== undefined || header === undefined) return;
    this.#first = header;
    this.#own.add(id);
    onSeen();
  }

  #stepOf(event: Exclude<TraceEvent, { readonly kind: "packet" }>): FollowedStep {
    const { id, table, chain, verdict } = event;
    const header = this.#headers.get(id);
    const isNew = header !== undefined && !isAlike(header, this.#lastHeader);
    if (isNew) this.#lastHeader = header;
    return {
      place: `${table} ${chain}`,
      ...(event.kind === "rule" && { rule: event.rule }),
      ...(event.kind === "rule" && event.handle !== undefined && { handle: event.handle }),
      verdict,
      ...(isNew && { header }),
    };
  }
}

/** Whether both headers belong to one packet, whose addresses may have been rewritten. */
function isSame(header: PacketHeader, last: PacketHeader): boolean {
  if (header.arrivedBy === undefined) return false;
  if (header.id !== undefined && header.id !== 0) return header.id === last.id;
  return header.destination === last.destination &&
    header.sourcePort === last.sourcePort && header.destinationPort === last.destinationPort;
}

function isAlike(header: PacketHeader, last: PacketHeader | undefined): boolean {
  return last !== undefined && header.source === last.source &&
    header.destination === last.destination && header.sourcePort === last.sourcePort &&
    header.destinationPort === last.destinationPort && header.arrivedBy === last.arrivedBy;
}

/** nft prints the family before the name. */
function tableName(table: string): string {
  return table.split(" ").at(-1) ?? "";
}
