/**
 * The real way of one packet through a machine, as far as a mode can watch it.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";

/** Which packet is waited for: the first one that is like this. */
export interface WatchedPacket {
  readonly family: IpFamily;
  /** `undefined` = anybody's. */
  readonly from: IpAddress | undefined;
  /** Of the one that we send ourselves. */
  readonly sourcePort?: Port;
  readonly to: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  /** Whether this machine sends it, or it arrives here. */
  readonly comesFrom: "this machine" | "elsewhere";
}

/** The header of a packet at some point of its way; what a tool does not tell is absent. */
export interface PacketHeader {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** IPv4's identification: it stays when addresses and ports are rewritten. */
  readonly id?: number;
  /** The interface by which it arrived, or leaves. */
  readonly arrivedBy?: string;
  readonly leavesBy?: string;
}

/** Something that was done about the packet. */
export interface TraceStep {
  /** Where, in the tool's words: table and chain, or what stands for them. */
  readonly place: string;
  /** The rule that matched, in the tool's language; absent for the policy at a chain's end. */
  readonly rule?: string;
  /** What followed, in the tool's words, e.g. `jump services`. */
  readonly verdict: string;
  /** The packet as it came there, where that differs from the step before. */
  readonly header?: PacketHeader;
  /** What this means, for a step of ours. */
  readonly meaning?: string;
}

/** What became of the packet by these rules. */
export type TraceEnding = "went on" | "rejected" | "dropped" | "not seen";

/** What was seen. */
export interface TracedPath {
  readonly steps: readonly TraceStep[];
  readonly ending: TraceEnding;
  /** The packet as it was first seen. */
  readonly header?: PacketHeader;
  /** Where it was sent, as `ADDRESS:PORT`, by a mode that knows that beside the rules. */
  readonly endpoint?: string;
  /** Where the rules send it, as `ADDRESS:PORT`, in a way that sees rules and no packet. */
  readonly turnedTo?: string;
  /** What the endpoint sees as the client, by a mode that knows it. */
  readonly seenAs?: IpAddress;
  /** What has to be known to read the steps, each a sentence. */
  readonly notes: readonly string[];
}

/** A watch that is set. Disposing of it takes away everything that it added to the machine. */
export interface PacketWatch extends AsyncDisposable {
  /** How the packet is watched, as the end of "seen by …". */
  readonly way: string;
  /** Resolves once the packet was seen; never where this way can't tell. Rejects when the watch broke. */
  readonly seen: Promise<void>;
  /** Waits until nothing more comes, and tells what was seen. */
  path(options: PathOptions): Promise<TracedPath>;
}

/** What is known of the packet beside what was watched. */
export interface PathOptions {
  /** Whose address it was sent to. */
  readonly service?: string | undefined;
  /** It never came as far as to a rule, as the sender knows: there is nothing to wait for. */
  readonly isUnsent?: boolean;
}

/** Sets a watch. Throws a {@linkcode TraceError} where nothing can be watched. */
export type StartPacketWatch = (
  packet: WatchedPacket,
  options: { readonly signal: AbortSignal },
) => Promise<PacketWatch>;

/** Why a packet can't be watched, and what would be right. */
export class TraceError extends Error {
  override name = "TraceError";
}
