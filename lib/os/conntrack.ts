/**
 * The kernel's table of tracked connections, through the tool `conntrack` (checked with 1.4.7).
 *
 * @module
 */
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../net/ip_address.ts";
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

/**
 * `-A -t 29 -u SEEN_REPLY -s … -d … -r … -q … -p udp --sport … --dport … --reply-port-src … …`; the
 * answering side is `-g` if rules changed the destination, and `-n` replaces `-q` if rules changed
 * the source.
 */
const SAVED =
  / -d (\S+) -[rg] (\S+) -[qn] \S+ -p (?:udp|tcp) --sport \d+ --dport (\d+) --reply-port-src (\d+) /;

/** The tool's options for the flows of a protocol. */
const SELECTED: Readonly<Record<TrackedProtocol, readonly string[]>> = {
  TCP: ["-p", "tcp", "--state", "SYN_SENT"],
  UDP: ["-p", "udp"],
};

/** The table of this machine and network namespace. */
export function createConntrack(commands: CommandRunner): Conntrack {
  return {
    async listFlows(family, options) {
      const { ports, protocol } = options;
      // Few attempts have no answer at a time.
      if (protocol === "TCP" || ports.size > MOST_SINGLE_PORTS) {
        return await list(commands, { ...options, family });
      }
      let entries = 0;
      for (const port of ports) entries += await list(commands, { ...options, family, port });
      return entries;
    },
    async deleteFlows(family, flows, { protocol, ...options }) {
      const queries = flows.map((flow) => flowQuery(flow, protocol));
      return await deleteAll(commands, { ...options, family, queries });
    },
    async listConnections(family, options) {
      const { addresses } = options;
      const filters = addresses.size > MOST_SINGLE_ADDRESSES
        ? [[]]
        : [...addresses].flatMap((each) => [["--orig-src", each], ["--reply-src", each]]);
      for (const filter of filters) {
        await listConnections(commands, { ...options, family, filter });
      }
    },
    async deleteConnections(family, connections, options) {
      const queries = connections.map(connectionQuery);
      return await deleteAll(commands, { ...options, family, queries });
    },
  };
}

async function list(
  commands: CommandRunner,
  { family, port, ports, protocol, onFlow, signal }: ListFlows & {
    readonly family: IpFamily;
    /** Only print flows to this port. */
    readonly port?: Port;
  },
): Promise<number> {
  let entries = 0;
  let strange: string | undefined;
  let understood = false;
  const args = ["-L", "-f", FAMILY[family], ...SELECTED[protocol], "-o", "save"];
  if (port !== undefined) args.push("--orig-port-dst", String(port));
  await run(commands, args, {
    ...(signal && { signal }),
    onLine(line) {
      entries++;
      const fields = SAVED.exec(line);
      understood ||= fields !== null;
      if (!fields) strange ??= line;
      const flow = fields && flowOf(fields, ports);
      if (flow) onFlow(flow);
    },
  });
  // An unknown kind of entry is skipped; an unknown format of the tool is an error.
  if (strange !== undefined && !understood) throw strangeLine(strange);
  return entries;
}

async function listConnections(
  commands: CommandRunner,
  { family, filter, addresses, onConnection, signal }: ListConnections & {
    readonly family: IpFamily;
    readonly filter: readonly string[];
  },
): Promise<void> {
  let strange: string | undefined;
  let understood = false;
  await run(commands, ["-L", "-f", FAMILY[family], ...filter], {
    ...(signal && { signal }),
    onLine(line) {
      const connection = parseTrackedConnection(line);
      understood ||= connection !== undefined;
      if (!connection) strange ??= line;
      else if (addresses.has(connection.source) || addresses.has(connection.endpoint)) {
        onConnection(connection);
      }
    },
  });
  if (strange !== undefined && !understood) throw strangeLine(strange);
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

/** Returns the flow of a line; `undefined` for other ports. */
function flowOf(
  [, destination = "", replySource = "", dport, replySport]: RegExpExecArray,
  ports: ReadonlySet<Port>,
): TrackedFlow | undefined {
  const destinationPort = tryParsePort(Number(dport));
  // Nearly all lines of a large table end here, before their addresses are parsed.
  if (destinationPort === undefined || !ports.has(destinationPort)) return undefined;
  const replySourcePort = tryParsePort(Number(replySport));
  const addresses = { to: tryParseIpAddress(destination), from: tryParseIpAddress(replySource) };
  if (!addresses.to || !addresses.from || replySourcePort === undefined) return undefined;
  return {
    destination: addresses.to,
    destinationPort,
    replySource: addresses.from,
    replySourcePort,
  };
}

function strangeLine(line: string): SyntaxError {
  return new SyntaxError(
    `Cannot understand conntrack's line '${
      line.slice(0, 200)
    }': expected the form of version 1.4.7`,
  );
}

/** The properties that the deleted entries have in common. */
interface Deletion {
  readonly family: IpFamily;
  /** Options of the tool, one line for each kind of entry. */
  readonly queries: readonly string[];
  readonly signal?: AbortSignal;
}

async function deleteAll(
  commands: CommandRunner,
  { queries, ...options }: Deletion,
): Promise<number> {
  let deleted = 0;
  for (let from = 0; from < queries.length; from += BATCH_SIZE) {
    const batch = queries.slice(from, from + BATCH_SIZE);
    deleted += await deleteBatch(commands, { ...options, queries: batch });
  }
  return deleted;
}

/**
 * One process for all. A line of UDP names destination and answering endpoint, not each client:
 * `-D` goes through the whole table for every line (75 ms at 20,000 entries), and a dead endpoint
 * may have had thousands of clients. A missing entry is no error of a batch.
 */
async function deleteBatch(
  commands: CommandRunner,
  { family, queries, signal }: Deletion,
): Promise<number> {
  let deleted = 0;
  const stdin = queries.map((query) => `-D -f ${FAMILY[family]} ${query}\n`);
  // For "-" the tool opens /dev/stdin, which a machine without udev may lack.
  await run(commands, ["-R", "/proc/self/fd/0"], {
    stdin,
    ...(signal && { signal }),
    onLine: () => void deleted++,
  });
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
