import type {
  PacketWatch,
  StartPacketWatch,
  TracedPath,
  TraceStep,
  WatchedPacket,
} from "../../lib/proxy/packet_trace.ts";
import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol, tryParseProtocol } from "../../lib/net/port.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { createIptablesTrace } from "../netfilter/trace/iptables_trace.ts";
import type { TraceEdges } from "../netfilter/trace/nft_watch.ts";
import {
  IP_VS_FILE,
  readVirtualServers,
  type SeenServer,
  serverKey,
} from "../netfilter/virtual_servers.ts";

/** Time between two looks while a packet of another program's is waited for. */
const LOOK_PERIOD_MS = 300;
const READ_TIMEOUT_MS = 30_000;

/** Watches packets in ipvs mode: the rules first, then IPVS. */
export function createIpvsTrace(edges: TraceEdges): StartPacketWatch {
  const startRules = createIptablesTrace(edges);
  return async (packet, options) => {
    const rules = await startRules(packet, options);
    try {
      return await withConnections(edges, packet, rules);
    } catch (error) {
      await rules[Symbol.asyncDispose]();
      throw error;
    }
  };
}

async function withConnections(
  edges: TraceEdges,
  packet: WatchedPacket,
  rules: PacketWatch,
): Promise<PacketWatch> {
  const before = new Set((await connectionsOf(edges, packet)).map(identity));
  const added = async () =>
    (await connectionsOf(edges, packet)).filter((each) => !before.has(identity(each)));
  const stop = new AbortController();
  const looking = (async () => {
    do await edges.clock.sleep(LOOK_PERIOD_MS, stop.signal); while ((await added()).length === 0);
  })();
  looking.catch(() => {});
  return {
    way: `${rules.way}; ${IP_VS_CONN_FILE}`,
    seen: Promise.race([rules.seen, looking]),
    async path(options) {
      const path = await rules.path(options);
      const [connection] = await added();
      if (connection !== undefined) return withStep(path, connection, options.service);
      const server = path.ending === "went on" ? await emptyServer(edges, packet) : undefined;
      return server === undefined ? path : refusedBy(path, server, options.service);
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await rules[Symbol.asyncDispose]();
    },
  };
}

/** Rules come first: IPVS never sees packets that they refuse. */
function withStep(
  path: TracedPath,
  connection: IpvsConnection,
  service = "no Service that is known",
): TracedPath {
  const { from, fromPort, to, toPort, endpoint, endpointPort, protocol, state } = connection;
  const step: TraceStep = {
    place: "IPVS",
    rule: `${protocol} ${formatHostPort(from, fromPort)} ${formatHostPort(to, toPort)} -> ` +
      formatHostPort(endpoint, endpointPort),
    verdict: state,
    meaning: `the virtual server of ${service} sends it to this endpoint`,
  };
  const header = { source: from, destination: to, sourcePort: fromPort, destinationPort: toPort };
  return {
    ...path,
    steps: [...path.steps, step],
    ending: "went on",
    endpoint: formatHostPort(endpoint, endpointPort),
    header: path.header ?? header,
  };
}

/** The virtual server of the destination, where it has no real server that takes connections. */
async function emptyServer(
  edges: TraceEdges,
  { to: address, port, protocol }: WatchedPacket,
): Promise<SeenServer | undefined> {
  const { stdout } = await edges.commands.run("cat", [IP_VS_FILE], { timeoutMs: READ_TIMEOUT_MS });
  const key = serverKey({ protocol, address, port });
  const servers = await inSteps(edges, readVirtualServers(stdout));
  const server = servers.find((each) => each.key === key);
  return server?.reals.every(({ weight }) => weight === 0) ? server : undefined;
}

/** IPVS refuses by itself and does not report it. */
function refusedBy(
  path: TracedPath,
  { key, setup }: SeenServer,
  service = "no Service that is known",
): TracedPath {
  const step: TraceStep = {
    place: "IPVS",
    rule: `${key} ${setup}`,
    verdict: "reject",
    meaning: `the virtual server of ${service} has no endpoint: the sender gets an error`,
  };
  return { ...path, steps: [...path.steps, step], ending: "rejected" };
}

function identity({ from, fromPort, endpoint, endpointPort }: IpvsConnection): string {
  return `${formatHostPort(from, fromPort)} ${formatHostPort(endpoint, endpointPort)}`;
}

async function connectionsOf(
  { commands }: TraceEdges,
  { from, sourcePort, to, port, protocol }: WatchedPacket,
): Promise<readonly IpvsConnection[]> {
  const found: IpvsConnection[] = [];
  // Without ip_vs there is no such file, and so no connection.
  await commands.run("cat", [IP_VS_CONN_FILE], {
    timeoutMs: READ_TIMEOUT_MS,
    onLine(line) {
      const each = parseIpvsConnection(line);
      if (each === undefined || each.to !== to || each.toPort !== port) return;
      if (each.protocol !== protocol || (from !== undefined && each.from !== from)) return;
      if (sourcePort === undefined || each.fromPort === sourcePort) found.push(each);
    },
  });
  return found;
}

/**
 * The connections of IPVS:
 *
 * ```
 * Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
 * TCP 0A000001 A1B2 0A600001 0050 0A010102 1F90 ESTABLISHED     899
 * ```
 */
const IP_VS_CONN_FILE = "/proc/net/ip_vs_conn";

/** A connection and where it was sent. */
interface IpvsConnection {
  readonly protocol: Protocol;
  readonly from: IpAddress;
  readonly fromPort: number;
  readonly to: IpAddress;
  readonly toPort: number;
  readonly endpoint: IpAddress;
  readonly endpointPort: number;
  /** As the kernel prints it, e.g. `SYN_RECV`. */
  readonly state: string;
}

const ADDRESS = String.raw`\[?([0-9A-Fa-f:]+)\]?\s+([0-9A-F]{4})`;
const LINE = new RegExp(
  String.raw`^(TCP|UDP|SCTP)\s+${ADDRESS}\s+${ADDRESS}\s+${ADDRESS}\s+(\S+)\s+\d+`,
);

/** Parses one line; `undefined` for the header and unreadable lines. */
export function parseIpvsConnection(line: string): IpvsConnection | undefined {
  const [, word, fromIp, fromPort, toIp, toPort, endpointIp, endpointPort, state] =
    LINE.exec(line) ?? [];
  const protocol = word === undefined ? undefined : tryParseProtocol(word);
  const [from, to, endpoint] = [fromIp, toIp, endpointIp].map(addressOf);
  if (!protocol || !from || !to || !endpoint || state === undefined) return undefined;
  const [a = 0, b = 0, c = 0] = [fromPort, toPort, endpointPort].map((hex) =>
    parseInt(hex ?? "", 16)
  );
  return { protocol, from, fromPort: a, to, toPort: b, endpoint, endpointPort: c, state };
}

function addressOf(text = ""): IpAddress | undefined {
  if (text.includes(":")) return tryParseIpAddress(text);
  if (text.length !== 8) return undefined;
  const octets = text.match(/../g)?.map((hex) => parseInt(hex, 16)) ?? [];
  return tryParseIpAddress(octets.join("."));
}
