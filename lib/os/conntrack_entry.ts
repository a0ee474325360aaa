/**
 * The entry of one connection in the kernel's table of tracked connections, through the tool
 * `conntrack` (checked with 1.4.7).
 *
 * @module
 */
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../net/ip_address.ts";
import type { CommandRunner } from "./command_runner.ts";
import type { FlowQuery } from "../proxy/flow_watches.ts";

/** Addresses and ports of a packet of one direction. */
export interface ConntrackTuple {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly sourcePort: number;
  readonly destinationPort: number;
}

/** A connection as the kernel tracks it. */
export interface ConntrackEntry {
  /** The packet of the client. */
  readonly original: ConntrackTuple;
  /** The packet of the answer: from the endpoint, to the address that the endpoint sees. */
  readonly reply: ConntrackTuple;
  /** The state in the tool's spelling, e.g. `SYN_SENT`; absent for protocols without one. */
  readonly state?: string;
}

/** Selects a connection: without the source, or its port, any connection to the destination. */
interface ConntrackQuery extends FlowQuery {
  readonly family: IpFamily;
}

/** A table of millions of entries takes a while. */
const TIMEOUT_MS = 60_000;
const TUPLE = /src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)/g;

/** Returns the entry, or `undefined`. Rejects with the error of the tool. */
export async function findConntrackEntry(
  commands: CommandRunner,
  { family, protocol, from, sourcePort, to, port }: ConntrackQuery,
): Promise<ConntrackEntry | undefined> {
  const args = [
    ...["-L", "-f", family.toLowerCase(), "-p", protocol.toLowerCase()],
    ...["--orig-dst", to, "--orig-port-dst", `${port}`],
    ...(from === undefined ? [] : ["--orig-src", from]),
    ...(sourcePort === undefined ? [] : ["--orig-port-src", `${sourcePort}`]),
  ];
  let found: ConntrackEntry | undefined;
  const { code, stderr } = await commands.run("conntrack", args, {
    timeoutMs: TIMEOUT_MS,
    onLine: (line) => void (found ??= parseConntrackEntry(line)),
  });
  if (code === 0) return found;
  const reason = stderr.trim().split("\n")[0]?.replace(/^conntrack v\S+ \(.*?\): /, "");
  throw new Error(`Cannot run 'conntrack -L': ${reason || `exit code ${code}`}`);
}

/** Parses one line of `conntrack -L`; `undefined` for any other. */
export function parseConntrackEntry(line: string): ConntrackEntry | undefined {
  const [original, reply] = [...line.matchAll(TUPLE)].map(tupleOf);
  if (original === undefined || reply === undefined) return undefined;
  const state = /^\w+\s+\d+\s+\d+\s+([A-Z_]+)\s/.exec(line)?.[1];
  return { original, reply, ...(state !== undefined && { state }) };
}

/** A connection of any protocol, with the properties that a NetworkPolicy distinguishes. */
export interface TrackedConnection {
  /** As the tool takes it: a name such as `tcp`, or a number. */
  readonly protocol: string;
  /** The client, before its source is translated. */
  readonly source: IpAddress;
  /** The destination of the client's packets. */
  readonly destination: IpAddress;
  /** The end that answers, after the destination was translated. */
  readonly endpoint: IpAddress;
  /** Absent for protocols without ports. */
  readonly ports?: { readonly destination: number; readonly endpoint: number };
}

const HEAD = /^(\w+)\s+(\d+)\s/;
const ADDRESSES = /src=(\S+) dst=(\S+)(?: sport=(\d+) dport=(\d+))?/g;

/** One line that `conntrack -L` prints; `undefined` for any other. */
export function parseTrackedConnection(line: string): TrackedConnection | undefined {
  const [, name = "", number = ""] = HEAD.exec(line) ?? [];
  const [original, reply] = [...line.matchAll(ADDRESSES)];
  const [source, destination, endpoint] = [original?.[1], original?.[2], reply?.[1]]
    .map((text) => tryParseIpAddress(text ?? ""));
  if (name === "" || !source || !destination || !endpoint) return undefined;
  const ports = { destination: Number(original?.[4]), endpoint: Number(reply?.[3]) };
  return {
    protocol: name === "unknown" ? number : name,
    source,
    destination,
    endpoint,
    ...(original?.[4] !== undefined && { ports }),
  };
}

function tupleOf(
  [, src = "", dst = "", sport, dport]: RegExpExecArray,
): ConntrackTuple | undefined {
  const source = tryParseIpAddress(src);
  const destination = tryParseIpAddress(dst);
  if (source === undefined || destination === undefined) return undefined;
  return { source, destination, sourcePort: Number(sport), destinationPort: Number(dport) };
}
