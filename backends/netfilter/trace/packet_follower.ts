import type { PacketHeader, TraceStep } from "../../../lib/proxy/packet_trace.ts";
import type { TraceEvent } from "./trace_event.ts";
import { isTraceTable } from "./mark_table.ts";

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
    if (isTraceTable(tableName(event.table)) || this.#steps.length >= MOST_STEPS) return true;
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
    const { id, table = "", chain = "", verdict } = event;
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
function tableName(table: string | undefined): string {
  return table?.split(" ").at(-1) ?? "";
}
