/**
 * The kernel's table of tracked connections, through the tool `conntrack` (checked with 1.4.7).
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
import type { TrackedFlow, TrackedProtocol } from "../proxy/stale_flows.ts";
import { parseTrackedConnection, type TrackedConnection } from "./conntrack_entry.ts";
import type { CommandOptions, CommandResult, CommandRunner } from "./command_runner.ts";

/** Selects flows and receives them. */
interface ListFlows {
  /** Of TCP only attempts without an answer. */
  readonly protocol: TrackedProtocol;
  /** Destination ports of the client's packets; other flows are left out. */
  readonly ports: ReadonlySet<Port>;
  readonly onFlow: (flow: TrackedFlow) => void;
  readonly signal?: AbortSignal;
}

/** Selects connections and receives them. */
interface ListConnections {
  /** Addresses of clients, or of ends that answer. */
  readonly addresses: ReadonlySet<IpAddress>;
  readonly onConnection: (connection: TrackedConnection) => void;
  readonly signal?: AbortSignal;
}

/** The table, as far as kube-relay needs it. Errors name the remedy if known. */
export interface Conntrack {
  /** Reads the table of a family. Resolves to the number of examined entries. */
  listFlows(family: IpFamily, options: ListFlows): Promise<number>;
  /**
   * Deletes every entry that matches one of these flows. Resolves to the number of deleted entries.
   */
  deleteFlows(
    family: IpFamily,
    flows: readonly TrackedFlow[],
    options: { readonly protocol: TrackedProtocol; readonly signal?: AbortSignal },
  ): Promise<number>;
  /** Goes through the connections of these addresses. One may come twice. */
  listConnections(family: IpFamily, options: ListConnections): Promise<void>;
  /** Deletes every entry that differs from one of these in the client's port only, as {@linkcode deleteFlows}. */
  deleteConnections(
    family: IpFamily,
    connections: readonly TrackedConnection[],
    options?: { readonly signal?: AbortSignal },
  ): Promise<number>;
}

/** Up to this many ports are listed one by one, so that the tool prints little. */
const MOST_SINGLE_PORTS = 3;
/** Up to this many addresses are listed one by one, each at both ends. */
const MOST_SINGLE_ADDRESSES = 2;
/** A table of millions of entries takes minutes. */
const TIMEOUT_MS = 300_000;
/** Lines per batch: each of them reads the whole table. */
const BATCH_SIZE = 100;

const FAMILY: Readonly<Record<IpFamily, string>> = { IPv4: "ipv4", IPv6: "ipv6" };

/** The tool's options for the flows of a protocol. */
const SELECTED: Readonly<Record<TrackedProtocol, readonly string[]>> = {
  TCP: ["-p", "tcp", "--state", "SYN_SENT"],
  UDP: ["-p", "udp"],
};

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
          const connection = parseTrackedConnection(line);
          const replySourcePort = tryParsePort(Number(connection?.ports?.endpoint));
          if (connection === undefined || replySourcePort === undefined) return false;
          const { destination, endpoint: replySource } = connection;
          onFlow({ destination, destinationPort, replySource, replySourcePort });
          return true;
        });
      }
      return entries;
    },
    async deleteFlows(family, flows, { protocol, signal }) {
      const queries = flows.map((flow) => flowQuery(flow, protocol));
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
          const { source, endpoint } = connection;
          if (addresses.has(source) || addresses.has(endpoint)) onConnection(connection);
          return true;
        });
      }
    },
    async deleteConnections(family, connections, { signal } = {}) {
      return await deleteAll(commands, family, connections.map(connectionQuery), signal);
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

function flowQuery(
  { destination, destinationPort, replySource, replySourcePort }: TrackedFlow,
  protocol: TrackedProtocol,
): string {
  return `${
    SELECTED[protocol].join(" ")
  } --orig-dst ${destination} --orig-port-dst ${destinationPort}` +
    ` --reply-src ${replySource} --reply-port-src ${replySourcePort}`;
}

function connectionQuery(
  { protocol, source, destination, endpoint, ports }: TrackedConnection,
): string {
  const withPorts = ports
    ? ` --orig-port-dst ${ports.destination} --reply-port-src ${ports.endpoint}`
    : "";
  return `-p ${protocol} --orig-src ${source} --orig-dst ${destination}` +
    ` --reply-src ${endpoint}${withPorts}`;
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

async function run(
  commands: CommandRunner,
  args: readonly string[],
  options: CommandOptions,
): Promise<CommandResult> {
  const result = await commands.run("conntrack", args, { ...options, timeoutMs: TIMEOUT_MS });
  if (result.code === 0) return result;
  const reason = result.stderr.trim().split("\n")[0]?.replace(/^conntrack v\S+ \(.*?\): /, "");
  const cure = /CAP_NET_ADMIN/.test(result.stderr)
    ? "; run kube-relay as root or with AmbientCapabilities=CAP_NET_ADMIN"
    : "";
  throw new Error(
    `Cannot run 'conntrack ${args[0]}': ${reason || `exit code ${result.code}`}${cure}`,
  );
}
