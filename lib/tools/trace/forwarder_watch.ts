import { formatHostPort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { WatchedFlow } from "../../proxy/flow_watches.ts";
import type {
  PacketWatch,
  StartPacketWatch,
  TracedPath,
  TraceStep,
  WatchedPacket,
} from "../../proxy/packet_trace.ts";
import { askControl } from "../control/control_client.ts";

interface ForwarderEdges {
  readonly clock: Clock;
  readonly controlSocket: string;
  /** Identifies this watch. */
  readonly id: string;
}

const ASK_PERIOD_MS = 100;
/** Four attempts to reach an endpoint take 4 s. */
const MOST_ASKS = 45;
const FEW_ASKS = 4;

/** Watches by asking the forwarder of userspace mode, where no rule decides. */
export function createForwarderTrace(edges: ForwarderEdges): StartPacketWatch {
  return async (packet, { signal }) => {
    const { from, sourcePort, to, port, protocol } = packet;
    const query = {
      id: edges.id,
      protocol,
      to,
      port: `${port}`,
      from,
      sourcePort: sourcePort?.toString(),
    };
    const ask = () => askControl(edges.controlSocket, "/flow", query);
    // After the first answer the watch is active.
    await ask();
    const stop = new AbortController();
    const found = untilSeen(edges.clock, { ask, signal: AbortSignal.any([signal, stop.signal]) });
    found.catch(() => {});
    return watchOf(edges.clock, { found, stop, packet });
  };
}

function watchOf(
  clock: Clock,
  { found, stop, packet }: {
    readonly found: Promise<WatchedFlow>;
    readonly stop: AbortController;
    readonly packet: WatchedPacket;
  },
): PacketWatch {
  const seen = found.then(() => {});
  seen.catch(() => {});
  return {
    way: "the process that forwards",
    seen,
    async path({ service, isUnsent = false }): Promise<TracedPath> {
      const late = new AbortController();
      // A connection that was closed before its accept is reported too.
      const asks = isUnsent ? 0 : packet.comesFrom === "elsewhere" ? MOST_ASKS : FEW_ASKS;
      const pause = clock.sleep(asks * ASK_PERIOD_MS, late.signal).then(() => undefined);
      pause.catch(() => {});
      const flow = await Promise.race([found, pause]);
      late.abort();
      return flow === undefined ? NOT_SEEN : pathOf(flow, service);
    },
    [Symbol.asyncDispose]() {
      stop.abort();
      return Promise.resolve();
    },
  };
}

const NOT_SEEN: TracedPath = {
  steps: [],
  ending: "not seen",
  notes: [
    "kube-relay accepted no such connection: no program listens there, or it was kept " +
    "from arriving",
  ],
};

async function untilSeen(
  clock: Clock,
  { ask, signal }: {
    readonly ask: () => Promise<readonly WatchedFlow[]>;
    readonly signal: AbortSignal;
  },
): Promise<WatchedFlow> {
  for (;;) {
    await clock.sleep(ASK_PERIOD_MS, signal);
    const [flow] = await ask();
    if (flow !== undefined) return flow;
  }
}

function pathOf(flow: WatchedFlow, service: string = flow.service): TracedPath {
  const { client, clientPort, to, port, endpoint, seenAs, detail, protocol } = flow;
  const header = { source: client, destination: to, sourcePort: clientPort, destinationPort: port };
  const taken: TraceStep = {
    place: `listener ${formatHostPort(to, port)}/${protocol}`,
    verdict: "taken",
    rule: "",
    header,
    meaning: `an address of ${service}`,
  };
  const result: TraceStep = endpoint === undefined
    ? { place: "forwarder", verdict: "reject", rule: detail ?? "refused" }
    : {
      place: "forwarder",
      verdict: `connect ${endpoint}`,
      rule: "",
      meaning: "a connection of this process: the endpoint sees an address of this node",
    };
  return {
    steps: [taken, result],
    ending: endpoint === undefined ? "rejected" : "went on",
    header,
    ...(endpoint !== undefined && { endpoint }),
    ...(seenAs !== undefined && { seenAs }),
    notes: [],
  };
}
