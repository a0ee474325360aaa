import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { TraceStep } from "../../proxy/packet_trace.ts";
import type { FlowQuery } from "../../proxy/flow_watches.ts";

/** The requested packet. */
interface TracedPacket extends Omit<FlowQuery, "from"> {
  readonly family: IpFamily;
  readonly from: IpAddress | "any";
}

/** The result. */
export type TraceOutcome =
  | {
    readonly kind: "forwarded";
    /** `ADDRESS:PORT`. */
    readonly endpoint: string;
    /** The client address that the endpoint sees, if known. */
    readonly seenAs?: IpAddress;
  }
  | {
    readonly kind: "rejected" | "dropped";
    /** The step that did it, if known. */
    readonly by?: TraceStep;
  }
  /** The step changed the destination, and nothing was seen of the packet after that. */
  | { readonly kind: "lost"; readonly by: TraceStep }
  /** The destination was not changed. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "not seen" };

/** The source of the packet. */
export type TraceOrigin =
  | {
    readonly kind: "sent";
    /** For example `a TCP SYN`. */
    readonly what: string;
    /** For example `connected`, `refused`, `no answer within 2s`. */
    readonly result: string;
  }
  | { readonly kind: "waited for" };

/** The comparison with the explanation. */
export interface TraceComparison {
  /** One sentence. */
  readonly expected: string;
  /** Empty if the path is as expected. */
  readonly differences: readonly string[];
}

/** The report, as `--json` prints it. */
export interface TraceReport {
  readonly mode: BackendMode;
  readonly node: string;
  readonly packet: TracedPacket;
  readonly origin: TraceOrigin;
  /** As the end of "seen by …". */
  readonly way: string;
  /** The ServicePort that has the address, and the role of the address. */
  readonly service?: { readonly key: string; readonly role: string };
  readonly steps: readonly TraceStep[];
  readonly outcome: TraceOutcome;
  /** The entry of connection tracking, if one was found. */
  readonly conntrack?: ConntrackEntry;
  /** Absent if nothing was seen. */
  readonly comparison?: TraceComparison;
  /** One sentence each. */
  readonly notes: readonly string[];
}
