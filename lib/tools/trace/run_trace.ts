import { messageOf } from "../../log/message_of.ts";
import { formatHostPort, parsePort, type Port } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { type ConntrackEntry, findConntrackEntry } from "../../os/conntrack.ts";
import type { Network, SocketAddress } from "../../os/network.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { type StartPacketWatch, TraceError, type WatchedPacket } from "../../proxy/packet_trace.ts";
import type { ExplainReport } from "../explain/explain_report.ts";
import { PacketEndsError, parseFrom } from "../explain/packet_ends.ts";
import {
  compareWithExplanation,
  NO_ROUTE,
  outcomeOf,
  REFUSED,
  type TraceOrigin,
  type TraceReport,
} from "./trace_report.ts";

/** Most packets that an error names. */
const MOST_NAMED = 6;

/**
 * Traces the packet that `report`, the explanation by the running kube-relay, is about, and undoes every
 * change to the machine. Throws a TraceError, a PacketEndsError if there are several packets, or as
 * `explain`.
 */
export async function runTrace(
  { clock, network, commands }: {
    readonly clock: Clock;
    readonly network: Network;
    readonly commands: CommandRunner;
  },
  report: ExplainReport,
  { explain, start, waitMs, signal, onWaiting }: {
    /** Asks for the explanation of another packet. */
    readonly explain: (
      ends: { readonly from: string; readonly to: string },
    ) => Promise<ExplainReport>;
    readonly start: StartPacketWatch;
    /** Longest wait for a packet of another machine. */
    readonly waitMs: number;
    readonly signal: AbortSignal;
    /** Called with the awaited packet before the wait. */
    readonly onWaiting: (text: string) => void;
  },
): Promise<TraceReport> {
  // If both IP families match, the first one is used.
  const [expected, ...others] = report.packets.filter(({ family }) =>
    family === report.packets[0]?.family
  );
  if (expected === undefined || others.length > 0) {
    const named = report.packets.filter(({ family }) => family === expected?.family)
      .map(({ packet: { to, port, protocol } }) => `${formatHostPort(to, port)}/${protocol}`);
    const more = named.length > MOST_NAMED ? `, and ${named.length - MOST_NAMED} more` : "";
    throw new PacketEndsError(
      `Cannot trace several packets at once: '${report.to}' may be ` +
        `${named.slice(0, MOST_NAMED).join(", ")}${more}; name one`,
    );
  }
  const { family, packet: { from: sender, to, port, protocol } } = expected;
  const isSent = sender.kind === "node";
  // The kernel chooses the source of the node's own packet.
  const source = parseFrom(report.from).kind === "address" ? sender.address : undefined;
  const wanted: WatchedPacket = {
    ...{ family, to, port, protocol, from: source },
    comesFrom: isSent ? "this machine" : "elsewhere",
  };
  using ready = isSent ? preparePacket(clock, network, wanted, signal) : undefined;
  const packet = ready ? { ...wanted, sourcePort: ready.sourcePort } : wanted;
  await using set = await start(packet, { signal });
  let origin: TraceOrigin = { kind: "waited for" };
  if (ready) origin = await ready.send();
  else {
    const text = `a new ${protocol} connection or flow from ${source ?? "any client"} to ` +
      formatHostPort(to, port);
    onWaiting(text);
    const late = Promise.withResolvers<never>();
    const reason = `no packet was seen within ${waitMs / 1000} s; expected ${text}`;
    const timer = clock.setTimer(
      waitMs,
      () => late.reject(new TraceError(`Cannot trace: ${reason}`)),
    );
    void whenAborted(signal).then(() => late.reject(signal.reason));
    try {
      await Promise.race([set.seen, late.promise]);
    } finally {
      timer.cancel();
    }
  }
  const isUnsent = origin.kind === "sent" && origin.result === NO_ROUTE;
  const path = await set.path({ service: expected.service?.key, isUnsent });
  if (path.ending === "not seen" && path.steps.length === 0 && !ready) {
    throw new TraceError("Cannot trace: the packet was seen, but its path was not");
  }
  const { header } = path;
  const from = header?.source ?? packet.from;
  const sourcePort = header?.sourcePort ?? packet.sourcePort;
  let entry: ConntrackEntry | undefined;
  const problems: string[] = [];
  // A rejected or dropped packet has no entry.
  if (path.ending !== "rejected" && path.ending !== "dropped") {
    const ends = { ...(from && { from }), ...(sourcePort && { sourcePort }) };
    try {
      entry = await findConntrackEntry(commands, { family, protocol, to, port, ...ends });
    } catch (error) {
      problems.push(`Connection tracking could not be asked: ${messageOf(error)}`);
    }
  }
  let explained = expected;
  if (!isSent && header !== undefined) {
    // Explained again with the sender and the interface of the packet that was seen.
    const { source, arrivedBy } = header;
    const named = report.from === "outside" ? source : report.from;
    const again = await explain({
      from: arrivedBy === undefined || named.includes("@") ? named : `${named}@${arrivedBy}`,
      to: `${formatHostPort(to, port)}/${protocol}`,
    });
    explained = again.packets[0] ?? expected;
  }
  const { mode, nodeName: node, assumptions } = report;
  const outcome = outcomeOf(path, entry, origin, !MODE_TRAITS[mode].forwardsItself);
  const { service } = explained;
  const seen = from ?? entry?.original.source;
  return {
    mode,
    node,
    packet: {
      ...{ family, from: seen ?? "any", to, port, protocol },
      ...(sourcePort !== undefined && { sourcePort }),
    },
    origin,
    way: set.way,
    ...(service && { service: { key: service.key, role: service.role } }),
    steps: path.steps,
    outcome,
    ...(entry && { conntrack: entry }),
    ...(outcome.kind !== "not seen" && {
      comparison: compareWithExplanation(
        explained,
        outcome,
        network.interfaceAddresses().map(({ address }) => address),
        seen ?? explained.packet.from.address,
      ),
    }),
    notes: [...path.notes, ...(report.from === "outside" ? [] : assumptions), ...problems],
  };
}

/** Longest wait for an answer. Endpoints of the cluster answer within milliseconds. */
const ANSWER_MS = 400;

/** Reserves a source port for the packet. Throws a TraceError if it cannot be sent from there. */
function preparePacket(
  clock: Clock,
  network: Network,
  { family, from, to, port, protocol }: WatchedPacket,
  signal: AbortSignal,
): Disposable & { readonly sourcePort: Port; send(): Promise<TraceOrigin> } {
  if (protocol === "SCTP") {
    throw new TraceError(
      "Cannot send an SCTP packet: only TCP and UDP can be sent; name the sender of the packet " +
        "to wait for",
    );
  }
  const local = { hostname: from ?? (family === "IPv4" ? "0.0.0.0" : "::"), port: 0 };
  const target = { hostname: to, port };
  const attempt = <Socket>(open: (local: SocketAddress) => Socket): Socket => {
    try {
      return open(local);
    } catch (error) {
      throw new TraceError(`Cannot send from ${local.hostname}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  };
  const silent = `no answer within ${ANSWER_MS / 1000} s`;
  const send = async (
    what: string,
    act: (late: AbortSignal) => Promise<string>,
  ): Promise<TraceOrigin> => {
    const late = new AbortController();
    const timer = clock.setTimer(ANSWER_MS, () => late.abort());
    let result: string;
    try {
      result = await act(AbortSignal.any([signal, late.signal]));
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      if (late.signal.aborted) result = silent;
      else if (code === "ECONNREFUSED") result = REFUSED;
      else if (code === "ENETUNREACH") result = NO_ROUTE;
      else result = `failed (${typeof code === "string" ? code : messageOf(error)})`;
    } finally {
      timer.cancel();
    }
    signal.throwIfAborted();
    return { kind: "sent", what, result };
  };
  if (protocol === "TCP") {
    const listener = attempt((local) => network.listenTcp(local));
    const sourcePort = parsePort(listener.addr.port);
    listener.close();
    const from = { hostname: local.hostname, port: sourcePort };
    return {
      sourcePort,
      send: () =>
        send("a TCP SYN", async (signal) => {
          await network.tryConnectTcp(target, { from, signal });
          return "connected, and closed at once";
        }),
      [Symbol.dispose]() {},
    };
  }
  const socket = attempt((local) => network.listenUdp(local));
  return {
    sourcePort: parsePort(socket.addr.port),
    send: () =>
      send("a UDP datagram of one byte", async (late) => {
        await socket.send(new Uint8Array(1), target);
        const silence = whenAborted(late).then(() => `${silent}, as is usual with UDP`);
        const answer = socket.receive(new Uint8Array(65_535)).then(() => "answered", () => silence);
        return await Promise.race([answer, silence]);
      }),
    [Symbol.dispose]: () => socket.close(),
  };
}
