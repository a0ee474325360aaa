/**
 * The text of a small file with facts about virtual servers that the kernel does not keep: the time at
 * which real servers began to drain, and the addresses of node ports. Pure.
 *
 * @module
 */
import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { DrainingServer } from "./drain_list.ts";
import type { RealServerKey, ServerKey } from "./virtual_server.ts";

/** Virtual servers of node ports: one for each address and port. */
export interface NodePortServers {
  readonly addresses: ReadonlySet<IpAddress>;
  /** Such as `tcp 30080`. A set in the kernel contains those of SCTP, with their addresses. */
  readonly ports: ReadonlySet<string>;
}

/** The facts that the next run needs. */
export interface ServerRecord {
  /** Times are milliseconds since 1970. */
  readonly drains: readonly DrainingServer[];
  readonly nodePorts: NodePortServers;
}

/** No virtual server. */
export const NO_NODE_PORTS: NodePortServers = { addresses: new Set(), ports: new Set() };

/** An empty record. */
export const EMPTY_SERVER_RECORD: ServerRecord = { drains: [], nodePorts: NO_NODE_PORTS };

/** Maximum size; a larger file does not belong to this mode. */
export const MAX_RECORD_BYTES = 4 * 1024 * 1024;

/** Maximum number of draining servers in the file. Further ones drain from the start after a restart. */
const MAX_DRAINS = 10_000;
const MAX_ADDRESSES = 1_000;
const VERSION = 1;

/** Formats a record. Beyond the maximum, it contains the servers that began to drain first. */
export function formatServerRecord({ drains, nodePorts }: ServerRecord): string {
  const { addresses, ports } = nodePorts;
  const kept = drains.length <= MAX_DRAINS
    ? drains
    : drains.toSorted((one, other) => one.sinceMs - other.sinceMs).slice(0, MAX_DRAINS);
  return JSON.stringify({
    version: VERSION,
    drains: kept.map(({ server, real, sinceMs }) => [server, real, Math.round(sinceMs)]),
    nodePortAddresses: [...addresses].slice(0, MAX_ADDRESSES),
    nodePorts: [...ports],
  }) + "\n";
}

/** Parses a record. Throws a SyntaxError with the reason. */
export function parseServerRecord(text: string): ServerRecord {
  const raw = JSON.parse(text) as Partial<Record<string, unknown>> | null;
  if (raw?.version !== VERSION) {
    throw problem(`its version is ${kindOf(raw?.version)}, expected ${VERSION}`);
  }
  return {
    drains: listOf(raw.drains).map(recordedDrain),
    nodePorts: {
      addresses: new Set(listOf(raw.nodePortAddresses).map(recordedAddress)),
      ports: new Set(listOf(raw.nodePorts).map(recordedPort)),
    },
  };
}

/** Does not parse keys, because they are only compared with those of the kernel. */
function recordedDrain(value: unknown): DrainingServer {
  const [server, real, sinceMs] = listOf(value);
  if (typeof server !== "string" || typeof real !== "string" || typeof sinceMs !== "number") {
    throw problem(`expected two names and a time, got ${kindOf(value)}`);
  }
  return { server: server as ServerKey, real: real as RealServerKey, sinceMs };
}

function listOf(value: unknown): unknown[] {
  if (Array.isArray(value)) return value;
  throw problem(`expected a list, got ${kindOf(value)}`);
}

function recordedAddress(value: unknown): IpAddress {
  const address = typeof value === "string" ? tryParseIpAddress(value) : undefined;
  if (address !== undefined) return address;
  throw problem(`expected an IP address, got ${kindOf(value)}`);
}

function recordedPort(value: unknown): string {
  if (typeof value === "string" && /^(tcp|udp) \d{1,5}$/.test(value)) return value;
  throw problem(`expected a protocol and a port, got ${kindOf(value)}`);
}

/** A foreign file may contain anything, including values that cannot be printed. */
function kindOf(value: unknown): string {
  if (typeof value === "string") return `'${value.slice(0, 100)}'`;
  return typeof value === "number" ? String(value) : `something of type ${typeof value}`;
}

function problem(reason: string): SyntaxError {
  return new SyntaxError(`Cannot read record of virtual servers: ${reason}`);
}
