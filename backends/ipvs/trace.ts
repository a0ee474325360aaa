import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol, tryParseProtocol } from "../../lib/net/port.ts";
import type { StartPacketWatch, WatchedPacket } from "../../lib/proxy/packet_trace.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { createIptablesTrace } from "../netfilter/trace/iptables_trace.ts";
import type { TraceEdges } from "../netfilter/trace/nft_watch.ts";
import { IP_VS_FILE, readVirtualServers, serverKey } from "../netfilter/virtual_servers.ts";

/** Time between two looks while a packet of another program's is waited for. */
const LOOK_PERIOD_MS = 300;
const READ_TIMEOUT_MS = 30_000;

/** Watches packets in ipvs mode: the rules first, since IPVS never sees packets that they refuse. */
export function createIpvsTrace(edges: TraceEdges): StartPacketWatch {
  const { clock, commands } = edges;
  const startRules = createIptablesTrace(edges);
  return async (packet, options) => {
    // deno-lint-ignore no-undef -- the linter does not know this global yet
    await using undo = new AsyncDisposableStack();
    const rules = undo.use(await startRules(packet, options));
    const before = new Set((await connectionsOf(edges, packet)).map(ruleOf));
    const added = async () =>
      (await connectionsOf(edges, packet)).find((each) => !before.has(ruleOf(each)));
    const stop = new AbortController();
    undo.defer(() => stop.abort());
    const looking = (async () => {
      do await clock.sleep(LOOK_PERIOD_MS, stop.signal); while (await added() === undefined);
    })();
    looking.catch(() => {});
    const owned = undo.move();
    return {
      way: `${rules.way}; ${IP_VS_CONN_FILE}`,
      seen: Promise.race([rules.seen, looking]),
      async path(options) {
        const path = await rules.path(options);
        const { service = "no Service that is known" } = options;
        const connection = await added();
        if (connection !== undefined) {
          const { from: source, to: destination, state: verdict } = connection;
          const { fromPort: sourcePort, toPort: destinationPort } = connection;
          const meaning = `the virtual server of ${service} sends it to this endpoint`;
          const step = { place: "IPVS", rule: ruleOf(connection), verdict, meaning };
          return {
            ...path,
            steps: [...path.steps, step],
            ending: "went on",
            endpoint: formatHostPort(connection.endpoint, connection.endpointPort),
            header: path.header ?? { source, destination, sourcePort, destinationPort },
          };
        }
        if (path.ending !== "went on") return path;
        const { stdout } = await commands.run("cat", [IP_VS_FILE], { timeoutMs: READ_TIMEOUT_MS });
        const { to: address, port, protocol } = packet;
        const key = serverKey({ protocol, address, port });
        const server = (await inSteps(edges, readVirtualServers(stdout)))
          .find((each) => each.key === key);
        // IPVS refuses by itself, without a real server that takes connections, and does not report it.
        if (!server?.reals.every(({ weight }) => weight === 0)) return path;
        const meaning =
          `the virtual server of ${service} has no endpoint: the sender gets an error`;
        const rule = `${key} ${server.setup}`;
        const step = { place: "IPVS", rule, verdict: "reject", meaning };
        return { ...path, steps: [...path.steps, step], ending: "rejected" };
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  };
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

/** The connection in one line, without its state. */
function ruleOf(connection: IpvsConnection): string {
  const { protocol, from, fromPort, to, toPort, endpoint, endpointPort } = connection;
  return `${protocol} ${formatHostPort(from, fromPort)} ${formatHostPort(to, toPort)} -> ` +
    formatHostPort(endpoint, endpointPort);
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
  const protocol = tryParseProtocol(word);
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
