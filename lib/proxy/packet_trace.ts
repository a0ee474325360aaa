import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";

/** The packet to wait for: the first one that matches. */
export interface WatchedPacket {
  readonly family: IpFamily;
  /** `undefined` = any source. */
  readonly from: IpAddress | undefined;
  /** Only for a packet that kube-relay sends itself. */
  readonly sourcePort?: Port;
  readonly to: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  /** Whether this machine sends the packet or receives it. */
  readonly comesFrom: "this machine" | "elsewhere";
}

/**
 * The header of a packet at one point of its path; values that a tool does not report are absent.
 */
export interface PacketHeader {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** IPv4's identification: it stays the same when addresses and ports are rewritten. */
  readonly id?: number;
  /** The interface on which it arrived or leaves. */
  readonly arrivedBy?: string;
  readonly leavesBy?: string;
}

/** One step of the packet's path. */
export interface TraceStep {
  /** The place, in the tool's words: table and chain, or their equivalent. */
  readonly place: string;
  /** The rule that matched, in the tool's language; absent for the policy at a chain's end. */
  readonly rule?: string;
  /** The action, in the tool's words, e.g. `jump services`. */
  readonly verdict: string;
  /** The packet at this step, if it differs from the step before. */
  readonly header?: PacketHeader;
  /** The meaning of a step of kube-relay. */
  readonly meaning?: string;
}

/** The final result of these rules for the packet. */
export type TraceEnding = "went on" | "rejected" | "dropped" | "not seen";

/** The observed path of a packet. */
export interface TracedPath {
  readonly steps: readonly TraceStep[];
  readonly ending: TraceEnding;
  /** The packet as it was first seen. */
  readonly header?: PacketHeader;
  /** The chosen endpoint, as `ADDRESS:PORT`, in a mode that knows it without the rules. */
  readonly endpoint?: string;
  /**
   * The destination according to the rules, as `ADDRESS:PORT`, from a method that sees rules but no
   * packets.
   */
  readonly turnedTo?: string;
  /** The client address that the endpoint sees, in a mode that knows it. */
  readonly seenAs?: IpAddress;
  /** Notes that the reader needs to understand the steps, each a sentence. */
  readonly notes: readonly string[];
}

/** An active watch. Disposing of it removes everything that it added to the machine. */
export interface PacketWatch extends AsyncDisposable {
  /** The method of observation, as the end of "seen by …". */
  readonly way: string;
  /**
   * Resolves once the packet is seen; never if this method cannot see it. Rejects if the watch fails.
   */
  readonly seen: Promise<void>;
  /** Waits until no more steps arrive, and returns the observation. */
  path(options: {
    /** The ServicePort that owns the destination. */
    readonly service?: string | undefined;
    /** The packet never reached a rule, as its sender knows: there is nothing to wait for. */
    readonly isUnsent?: boolean;
  }): Promise<TracedPath>;
}

/** Starts a watch. Throws a {@linkcode TraceError} if the packet cannot be observed. */
export type StartPacketWatch = (
  packet: WatchedPacket,
  options: { readonly signal: AbortSignal },
) => Promise<PacketWatch>;

/** Thrown if a packet cannot be observed. The message gives the reason and the remedy. */
export class TraceError extends Error {
  override name = "TraceError";
}
