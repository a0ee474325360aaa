/**
 * The kernel's table of tracked connections, through the tool `conntrack` (checked with 1.4.7).
 *
 * @module
 */
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
import type { FlowQuery } from "../proxy/flow_watches.ts";
import type { TrackedFlow, TrackedProtocol } from "../proxy/stale_flows.ts";
import type { CommandOptions, CommandResult, CommandRunner } from "./command_runner.ts";
import { Sysctl } from "./sysctl.ts";

/** Addresses of a packet of one direction, and its ports in protocols that have them. */
export interface ConntrackTuple {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
}

/** A connection of any protocol, as the kernel tracks it. */
export interface TrackedConnection {
  /** As the tool takes it: a name such as `tcp`, or a number. */
  readonly protocol: string;
  /** The packet of the client. */
  readonly original: ConntrackTuple;
  /** The packet of the answer: from the endpoint, to the address that the endpoint sees. */
  readonly reply: ConntrackTuple;
  /** The state in the tool's spelling, e.g. `SYN_SENT`; absent for protocols without one. */
  readonly state?: string;
}

/** A connection of a protocol that has ports. */
export interface ConntrackEntry extends Pick<TrackedConnection, "state"> {
  readonly original: Required<ConntrackTuple>;
  readonly reply: Required<ConntrackTuple>;
}

/** The table, as far as kube-relay needs it. Errors name the remedy if known. */
export interface Conntrack {
  /** Reads the table of a family. Resolves to the number of examined entries. */
  listFlows(family: IpFamily, options: {
    /** Of TCP only attempts without an answer. */
    readonly protocol: TrackedProtocol;
    /** Destination ports of the client's packets; other flows are left out. */
    readonly ports: ReadonlySet<Port>;
    readonly onFlow: (flow: TrackedFlow) => void;
    readonly signal?: AbortSignal;
  }): Promise<number>;
  /**
   * Deletes every entry that matches one of these flows. Resolves to the number of deleted entries.
   */
  deleteFlows(
    family: IpFamily,
    flows: readonly TrackedFlow[],
    options: { readonly protocol: TrackedProtocol; readonly signal?: AbortSignal },
  ): Promise<number>;
  /** Goes through the connections of these addresses. One may come twice. */
  listConnections(family: IpFamily, options: {
    /** Addresses of clients, or of ends that answer. */
    readonly addresses: ReadonlySet<IpAddress>;
    readonly onConnection: (connection: TrackedConnection) => void;
    readonly signal?: AbortSignal;
  }): Promise<void>;
  /** Deletes every entry of these {@linkcode connectionQuery}s, as {@linkcode deleteFlows}. */
  deleteConnections(
    family: IpFamily,
    queries: readonly string[],
    options?: { readonly signal?: AbortSignal },
  ): Promise<number>;
}

/** Up to this many ports are listed one by one, so that the tool prints little. */
const MOST_SINGLE_PORTS = 3;
/** Up to this many addresses are listed one by one, each at both ends. */
const MOST_SINGLE_ADDRESSES = 2;
/** A table of millions of entries takes minutes. */
const TIMEOUT_MS = 300_000;
/** For one connection, whose user waits. */
const FIND_TIMEOUT_MS = 60_000;
/** Lines per batch: each of them reads the whole table. */
const BATCH_SIZE = 100;

const FAMILY: Readonly<Record<IpFamily, string>> = { IPv4: "ipv4", IPv6: "ipv6" };

/** The tool's options for the flows of a protocol. */
const SELECTED: Readonly<Record<TrackedProtocol, readonly string[]>> = {
  TCP: ["-p", "tcp", "--state", "SYN_SENT"],
  UDP: ["-p", "udp"],
};

const [COUNT, LIMIT] = ["net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max"];

/** The size of the table, by `sysctl`; `undefined` while the kernel does not track connections. */
export async function readConntrackSize(
  commands: CommandRunner,
): Promise<{ readonly entries: number; readonly limit: number } | undefined> {
  const { values } = await new Sysctl(commands).read([COUNT, LIMIT]);
  const [entries, limit] = [COUNT, LIMIT].map((name) => Number(values.get(name) || NaN));
  return Number.isFinite(entries) && Number.isFinite(limit)
    ? { entries: entries!, limit: limit! }
    : undefined;
}

/** The table of this machine and network namespace. */
export function createConntrack(commands: CommandRunner): Conntrack {
  return {
    async listFlows(family, { protocol, ports, onFlow, signal }) {
      const args = ["-f", FAMILY[family], ...SELECTED[protocol]];
      // Few attempts have no answer at a time.
      const filters = protocol === "TCP" || ports.size > MOST_SINGLE_PORTS
        ? [[]]
        : [...ports].map((port) => ["--orig-port-dst", String(port)]);
      let entries = 0;
      for (const filter of filters) {
        entries += await list(commands, [...args, ...filter], signal, (line) => {
          // Nearly all lines of a large table end here, before their addresses are parsed.
          const destinationPort = tryParsePort(Number(/ dport=(\d+) /.exec(line)?.[1]));
          if (destinationPort === undefined) return false;
          if (!ports.has(destinationPort)) return true;
          const { original, reply } = parseTrackedConnection(line) ?? {};
          const replySourcePort = tryParsePort(Number(reply?.sourcePort));
          if (!original || !reply || replySourcePort === undefined) return false;
          const [{ destination }, { source: replySource }] = [original, reply];
          onFlow({ destination, destinationPort, replySource, replySourcePort });
          return true;
        });
      }
      return entries;
    },
    async deleteFlows(family, flows, { protocol, signal }) {
      const queries = flows.map(({ destination, destinationPort, replySource, replySourcePort }) =>
        `${SELECTED[protocol].join(" ")} --orig-dst ${destination} --orig-port-dst ` +
        `${destinationPort} --reply-src ${replySource} --reply-port-src ${replySourcePort}`
      );
      return await deleteAll(commands, family, queries, signal);
    },
    async listConnections(family, { addresses, onConnection, signal }) {
      const filters = addresses.size > MOST_SINGLE_ADDRESSES
        ? [[]]
        : [...addresses].flatMap((each) => [["--orig-src", each], ["--reply-src", each]]);
      for (const filter of filters) {
        await list(commands, ["-f", FAMILY[family], ...filter], signal, (line) => {
          const connection = parseTrackedConnection(line);
          if (!connection) return false;
          const { original, reply } = connection;
          const isOfThese = addresses.has(original.source) || addresses.has(reply.source);
          if (isOfThese) onConnection(connection);
          return true;
        });
      }
    },
    async deleteConnections(family, queries, { signal } = {}) {
      return await deleteAll(commands, family, queries, signal);
    },
  };
}

/** Returns the number of entries. `take` returns whether it understands a line. */
async function list(
  commands: CommandRunner,
  args: readonly string[],
  signal: AbortSignal | undefined,
  take: (line: string) => boolean,
): Promise<number> {
  let entries = 0;
  let strange: string | undefined;
  let understood = false;
  await run(commands, ["-L", ...args], {
    ...(signal && { signal }),
    onLine(line) {
      entries++;
      if (take(line)) understood = true;
      else strange ??= line;
    },
  });
  // An unknown kind of entry is skipped; an unknown format of the tool is an error.
  if (strange !== undefined && !understood) {
    throw new SyntaxError(
      `Cannot understand conntrack's line '${strange.slice(0, 200)}': ` +
        "expected the form of version 1.4.7",
    );
  }
  return entries;
}

/** What deletes every entry that differs from this one in the client's port only. */
export function connectionQuery({ protocol, original, reply }: TrackedConnection): string {
  const { destinationPort: port } = original;
  const withPorts = port === undefined
    ? ""
    : ` --orig-port-dst ${port} --reply-port-src ${reply.sourcePort}`;
  return `-p ${protocol} --orig-src ${original.source} --orig-dst ${original.destination}` +
    ` --reply-src ${reply.source}${withPorts}`;
}

/**
 * One process for a hundred queries. A line of UDP names destination and answering endpoint, not each
 * client: `-D` goes through the whole table for every line (75 ms at 20,000 entries), and a dead endpoint
 * may have had thousands of clients. A missing entry is no error of a batch.
 */
async function deleteAll(
  commands: CommandRunner,
  family: IpFamily,
  queries: readonly string[],
  signal: AbortSignal | undefined,
): Promise<number> {
  let deleted = 0;
  for (let from = 0; from < queries.length; from += BATCH_SIZE) {
    const batch = queries.slice(from, from + BATCH_SIZE);
    // For "-" the tool opens /dev/stdin, which a machine without udev may lack.
    await run(commands, ["-R", "/proc/self/fd/0"], {
      stdin: batch.map((query) => `-D -f ${FAMILY[family]} ${query}\n`),
      ...(signal && { signal }),
      onLine: () => void deleted++,
    });
  }
  return deleted;
}

/**
 * Returns the entry of a connection, or `undefined`; without the source, or its port, that of any
 * connection to the destination. Rejects with the error of the tool.
 */
export async function findConntrackEntry(
  commands: CommandRunner,
  { family, protocol, from, sourcePort, to, port }: FlowQuery & { readonly family: IpFamily },
): Promise<ConntrackEntry | undefined> {
  const args = [
    ...["-L", "-f", FAMILY[family], "-p", protocol.toLowerCase()],
    ...["--orig-dst", to, "--orig-port-dst", `${port}`],
    ...(from === undefined ? [] : ["--orig-src", from]),
    ...(sourcePort === undefined ? [] : ["--orig-port-src", `${sourcePort}`]),
  ];
  let found: ConntrackEntry | undefined;
  await run(commands, args, {
    timeoutMs: FIND_TIMEOUT_MS,
    onLine(line) {
      const { original, reply, state } = parseTrackedConnection(line) ?? {};
      if (!hasPorts(original) || !hasPorts(reply)) return;
      found ??= { original, reply, ...(state !== undefined && { state }) };
    },
  });
  return found;
}

function hasPorts(tuple: ConntrackTuple | undefined): tuple is Required<ConntrackTuple> {
  return tuple?.sourcePort !== undefined;
}

const HEAD = /^(\w+)\s+(\d+)\s(?:\s*\d+\s+([A-Z_]+)\s)?/;
const TUPLE = /src=(\S+) dst=(\S+)(?: sport=(\d+) dport=(\d+))?/g;

/** One line that `conntrack -L` prints; `undefined` for any other. */
function parseTrackedConnection(line: string): TrackedConnection | undefined {
  const [, name = "", number = "", state] = HEAD.exec(line) ?? [];
  const [original, reply] = [...line.matchAll(TUPLE)].map(
    ([, src = "", dst = "", sport, dport]) => {
      const [source, destination] = [tryParseIpAddress(src), tryParseIpAddress(dst)];
      if (source === undefined || destination === undefined) return undefined;
      if (sport === undefined) return { source, destination };
      return { source, destination, sourcePort: Number(sport), destinationPort: Number(dport) };
    },
  );
  if (name === "" || original === undefined || reply === undefined) return undefined;
  const protocol = name === "unknown" ? number : name;
  return { protocol, original, reply, ...(state !== undefined && { state }) };
}

async function run(
  commands: CommandRunner,
  args: readonly string[],
  options: CommandOptions,
): Promise<CommandResult> {
  const result = await commands.run("conntrack", args, { timeoutMs: TIMEOUT_MS, ...options });
  if (result.code === 0) return result;
  const reason = result.stderr.trim().split("\n")[0]?.replace(/^conntrack v\S+ \(.*?\): /, "");
  const cure = /CAP_NET_ADMIN/.test(result.stderr)
    ? "; run kube-relay as root or with AmbientCapabilities=CAP_NET_ADMIN"
    : "";
  throw new Error(
    `Cannot run 'conntrack ${args[0]}': ${reason || `exit code ${result.code}`}${cure}`,
  );
}
