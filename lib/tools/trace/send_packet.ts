import { ipFamilyOf } from "../../net/ip_address.ts";
import { parsePort, type Port } from "../../net/port.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { Network, SocketAddress } from "../../os/network.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { TraceError, type WatchedPacket } from "../../proxy/packet_trace.ts";
import { NO_ROUTE, REFUSED, type TraceOrigin } from "./trace_outcome.ts";

interface SendingEdges {
  readonly clock: Clock;
  readonly network: Network;
}

/** A packet with a reserved source port. */
export interface ReadyPacket extends Disposable {
  readonly sourcePort: Port;
  /** Resolves to the result; the signal ends the wait for an answer. */
  send(enough: AbortSignal): Promise<TraceOrigin>;
}

const ANY: Readonly<Record<string, string>> = { IPv4: "0.0.0.0", IPv6: "::" };
/** Longest wait for an answer. Endpoints of the cluster answer within milliseconds. */
const ANSWER_MS = 400;
const DATAGRAM = new Uint8Array(1);

/** Reserves a port for the packet. Throws a TraceError if it cannot be sent from there. */
export function preparePacket(
  edges: SendingEdges,
  packet: Omit<WatchedPacket, "sourcePort">,
): ReadyPacket {
  const { from, to, port, protocol } = packet;
  const local = { hostname: from ?? ANY[ipFamilyOf(to)]!, port: 0 };
  const target = { hostname: to, port };
  switch (protocol) {
    case "TCP":
      return prepareTcp(edges, { local, target });
    case "UDP":
      return prepareUdp(edges, { local, target });
    case "SCTP":
      throw new TraceError(
        "Cannot send an SCTP packet: only TCP and UDP can be sent; name the sender of the packet " +
          "to wait for",
      );
  }
}

interface Ends {
  readonly local: SocketAddress;
  readonly target: SocketAddress;
}

function prepareTcp({ clock, network }: SendingEdges, { local, target }: Ends): ReadyPacket {
  const listener = attempt(local, () => network.listenTcp(local));
  const sourcePort = parsePort(listener.addr.port);
  listener.close();
  return {
    sourcePort,
    async send(enough) {
      const from = { hostname: local.hostname, port: sourcePort };
      const timeout = timeoutSignal(clock, ANSWER_MS, enough);
      const what = "a TCP SYN";
      try {
        await network.tryConnectTcp(target, { from, signal: timeout.signal });
        return { kind: "sent", what, result: "connected, and closed at once" };
      } catch (error) {
        const result = enough.aborted
          ? "no answer, nor will one come"
          : timeout.signal.aborted
          ? `no answer within ${ANSWER_MS / 1000} s`
          : connectFailure(error);
        return { kind: "sent", what, result };
      } finally {
        timeout.cancel();
      }
    },
    [Symbol.dispose]() {},
  };
}

function prepareUdp({ clock, network }: SendingEdges, { local, target }: Ends): ReadyPacket {
  const socket = attempt(local, () => network.listenUdp(local));
  const what = "a UDP datagram of one byte";
  return {
    sourcePort: parsePort(socket.addr.port),
    async send(enough) {
      const timeout = timeoutSignal(clock, ANSWER_MS, enough);
      const silence = whenAborted(timeout.signal)
        .then(() => `no answer within ${ANSWER_MS / 1000} s, as is usual with UDP`);
      try {
        await socket.send(DATAGRAM, target);
        const answer = socket.receive(new Uint8Array(65_535)).then(() => "answered", () => silence);
        return { kind: "sent", what, result: await Promise.race([answer, silence]) };
      } catch (error) {
        return { kind: "sent", what, result: connectFailure(error) };
      } finally {
        timeout.cancel();
      }
    },
    [Symbol.dispose]: () => socket.close(),
  };
}

function attempt<Socket>(local: SocketAddress, open: () => Socket): Socket {
  try {
    return open();
  } catch (error) {
    throw new TraceError(`Cannot send from ${local.hostname}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function connectFailure(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  if (code === "ECONNREFUSED") return REFUSED;
  if (code === "ENETUNREACH") return NO_ROUTE;
  return typeof code === "string" ? `failed (${code})` : `failed (${messageOf(error)})`;
}

function timeoutSignal(clock: Clock, ms: number, enough: AbortSignal) {
  const controller = new AbortController();
  const onEnough = () => controller.abort(enough.reason);
  if (enough.aborted) onEnough();
  enough.addEventListener("abort", onEnough, { once: true });
  const timer = clock.setTimer(ms, () => controller.abort());
  return {
    signal: controller.signal,
    cancel() {
      timer.cancel();
      enough.removeEventListener("abort", onEnough);
    },
  };
}
