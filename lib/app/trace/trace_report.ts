import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Port, Protocol } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { TraceStep } from "../../proxy/packet_trace.ts";

/** The packet that was asked for, and found if its source port is known. */
interface TracedPacket {
  readonly family: IpFamily;
  readonly from: IpAddress | "anybody";
  readonly sourcePort?: number;
  readonly to: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
}

/** What became of it. */
export type TraceOutcome =
  | {
    readonly kind: "forwarded";
    /** `ADDRESS:PORT`. */
    readonly endpoint: string;
    /** What the endpoint sees as the client; absent where that can't be told. */
    readonly seenAs?: IpAddress;
  }
  | {
    readonly kind: "rejected" | "dropped";
    /** The step that did it; absent where it can't be told. */
    readonly by?: TraceStep;
  }
  /** Nobody touched its destination. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "not seen" };

/** How it came to be. */
export type TraceOrigin =
  | {
    readonly kind: "sent";
    /** What was sent, e.g. `a TCP SYN`. */
    readonly what: string;
    /** What came of it, e.g. `connected`, `refused`, `no answer within 2s`. */
    readonly result: string;
  }
  | { readonly kind: "waited for" };

/** How it compares with what `explain` says. */
export interface TraceComparison {
  /** One sentence: what was to be expected. */
  readonly expected: string;
  /** Where the real path differs; empty = it agrees. */
  readonly differences: readonly string[];
}

/** Everything. */
export interface TraceReport {
  readonly mode: BackendMode;
  readonly node: string;
  readonly packet: TracedPacket;
  readonly origin: TraceOrigin;
  /** As the end of "seen by …". */
  readonly way: string;
  /** Key of the ServicePort that has the address, and what the address is to it. */
  readonly service?: { readonly key: string; readonly role: string };
  readonly steps: readonly TraceStep[];
  readonly outcome: TraceOutcome;
  /** What the kernel tracks; absent = nothing, or nobody could tell. */
  readonly conntrack?: ConntrackEntry;
  /** Absent where nothing was seen. */
  readonly comparison?: TraceComparison;
  /** What has to be known to read all this, a sentence each. */
  readonly notes: readonly string[];
}
