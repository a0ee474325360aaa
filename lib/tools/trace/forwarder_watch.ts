import { formatHostPort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { WatchedFlow } from "../../proxy/flow_watches.ts";
import type { StartPacketWatch, TracedPath } from "../../proxy/packet_trace.ts";
import { askControl } from "../control/control_client.ts";

const ASK_PERIOD_MS = 100;
/** Four attempts to reach an endpoint take 4 s. */
const MOST_ASKS = 45;
const FEW_ASKS = 4;

/**
 * Watches by asking the forwarder of userspace mode, where no rule decides. `id` identifies the watch.
 */
export function createForwarderTrace(
  clock: Clock,
  controlSocket: string,
  id: string,
): StartPacketWatch {
  return async ({ from, sourcePort, to, port, protocol, comesFrom }, { signal }) => {
    const ports = { port: `${port}`, sourcePort: sourcePort?.toString() };
    const ask = () => askControl(controlSocket, "/flow", { id, protocol, to, from, ...ports });
    // After the first answer the watch is active.
    await ask();
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const found = (async () => {
      for (;;) {
        await clock.sleep(ASK_PERIOD_MS, ended);
        const [flow] = await ask();
        if (flow !== undefined) return flow;
      }
    })();
    const seen = found.then(() => {});
    seen.catch(() => {});
    return {
      way: "the process that forwards",
      seen,
      async path({ service, isUnsent = false }) {
        const late = new AbortController();
        // A connection that was closed before its accept is reported too.
        const asks = isUnsent ? 0 : comesFrom === "elsewhere" ? MOST_ASKS : FEW_ASKS;
        const pause = clock.sleep(asks * ASK_PERIOD_MS, late.signal).then(() => undefined);
        pause.catch(() => {});
        const flow = await Promise.race([found, pause]);
        late.abort();
        if (flow) return pathOf(flow, service);
        const note = "kube-relay accepted no such connection: no program listens there, or it " +
          "was kept from arriving";
        return { steps: [], ending: "not seen", notes: [note] };
      },
      [Symbol.asyncDispose]() {
        stop.abort();
        return Promise.resolve();
      },
    };
  };
}

function pathOf(flow: WatchedFlow, service: string = flow.service): TracedPath {
  const { client, clientPort, to, port, endpoint, seenAs, detail, protocol } = flow;
  const header = { source: client, destination: to, sourcePort: clientPort, destinationPort: port };
  const taken = {
    place: `listener ${formatHostPort(to, port)}/${protocol}`,
    verdict: "taken",
    rule: "",
    header,
    meaning: `an address of ${service}`,
  };
  if (endpoint === undefined) {
    const refused = { place: "forwarder", verdict: "reject", rule: detail ?? "refused" };
    return { steps: [taken, refused], ending: "rejected", header, notes: [] };
  }
  const connected = {
    place: "forwarder",
    verdict: `connect ${endpoint}`,
    rule: "",
    meaning: "a connection of this process: the endpoint sees an address of this node",
  };
  return {
    steps: [taken, connected],
    ending: "went on",
    header,
    endpoint,
    ...(seenAs !== undefined && { seenAs }),
    notes: [],
  };
}
