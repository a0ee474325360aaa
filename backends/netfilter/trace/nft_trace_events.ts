/**
 * Reads `nft monitor trace` (checked with 1.0.6, which has no JSON for it), and follows the marked
 * packet in it. Pure except for its own state.
 *
 * @module
 */
import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { PacketHeader, TraceStep } from "../../../lib/proxy/packet_trace.ts";

/** Begins the names of the tables that mark packets, without the family. */
export const PREFIX = "kube-relay-trace-";

const LINE = /^trace id ([0-9a-f]+) (\w+) (\S+) (\S+) (packet:|rule|unknown|policy|verdict) ?(.*)$/;
/** Nothing in a rule's own text ends in this. */
const RULE = /^(.*) \(verdict ([^()]*)\)\s*$/;

/** At the end of a rule's text, for `nft -a`. */
const HANDLE = /^(.*) # handle (\d{1,9})$/;
/** A rule that the tool does not have: only its number is known. */
const UNKNOWN = /^(rule handle (\d{1,9}))$/;

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
  const number = (name: string, found: string | undefined) =>
    found === undefined ? {} : { [name]: Number(found) };
  const [arrivedBy, leavesBy] = [field(/\biif "([^"]*)"/), field(/\boif "([^"]*)"/)];
  return {
    source,
    destination,
    ...number("sourcePort", field(/\b(?:tcp|udp|sctp) sport (\d{1,10})\b/)),
    ...number("destinationPort", field(/\b(?:tcp|udp|sctp) dport (\d{1,10})\b/)),
    ...number("id", field(/\bip id (\d{1,10})\b/)),
    ...(arrivedBy && { arrivedBy }),
    ...(leavesBy && { leavesBy }),
  };
}

/** A step, and the number of its rule where that is known. */
export interface FollowedStep extends TraceStep {
  readonly handle?: number;
}

/** Marked packets are few, but a machine with other traces may report many. */
const MOST_IDS = 4096;
/** A packet in a routing loop is not followed forever. */
const MOST_STEPS = 2000;

/** Takes the lines in the order in which they were printed. */
export class PacketFollower {
  readonly steps: FollowedStep[] = [];
  /** The packet as it was when it was marked. */
  header: PacketHeader | undefined;
  readonly #table: string;
  readonly #beaconPort: number;
  readonly #headers = new Map<string, PacketHeader>();
  readonly #own = new Set<string>();
  #lastHeader: PacketHeader | undefined;

  /**
   * `table`: the name of the marking table, without its family. `beaconPort`: from and to this port go
   * the packets by which is seen whether the tool watches already.
   */
  constructor(table: string, beaconPort: number) {
    this.#table = table;
    this.#beaconPort = beaconPort;
  }

  /** Takes a line, and returns what it is about: a beacon, the packet, or neither. */
  take(line: string): "beacon" | "packet" | undefined {
    const [, id = "", family, name = "", chain, word, rest = ""] = LINE.exec(line) ?? [];
    if (word === undefined) return undefined;
    if (word === "packet:") return this.#takeHeader(id, headerOf(rest));
    const [, printed, action = rest] = RULE.exec(rest) ?? [];
    const isRule = word === "rule" || word === "unknown";
    if (isRule && printed === undefined) return undefined;
    const verdict = word === "policy" ? rest.split(" ")[0]! : action.trim();
    const [, text = printed, handle] =
      (word === "unknown" ? UNKNOWN : HANDLE).exec(isRule ? printed! : "") ?? [];
    const rule = isRule ? withoutCounters(text!) : undefined;
    if (name === this.#table && rule !== undefined && verdict === "continue") {
      const header = this.#headers.get(id);
      const { sourcePort, destinationPort } = header ?? {};
      if (sourcePort === this.#beaconPort && destinationPort === this.#beaconPort) return "beacon";
      if (this.header === undefined && header !== undefined) {
        this.header = header;
        this.#own.add(id);
      }
    }
    if (!this.#own.has(id)) return undefined;
    if (name.startsWith(PREFIX) || this.steps.length >= MOST_STEPS) return "packet";
    const header = this.#headers.get(id);
    const isNew = header !== undefined && !isAlike(header, this.#lastHeader);
    if (isNew) this.#lastHeader = header;
    this.steps.push({
      place: `${family} ${name} ${chain}`,
      ...(rule !== undefined && { rule }),
      ...(handle !== undefined && { handle: Number(handle) }),
      verdict,
      ...(isNew && { header }),
    });
    return "packet";
  }

  #takeHeader(id: string, header: PacketHeader | undefined): "packet" | undefined {
    if (header === undefined) return undefined;
    if (this.#headers.size >= MOST_IDS) this.#headers.clear();
    this.#headers.set(id, header);
    // A packet from this machine to itself gets another number when it arrives.
    if (this.header && !this.#own.has(id) && isSame(header, this.#lastHeader ?? this.header)) {
      this.#own.add(id);
    }
    return this.#own.has(id) ? "packet" : undefined;
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
