import { assertEquals, assertRejects } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { systemClock } from "../../os/clock.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import { FlowWatches, type WatchedFlow } from "../../proxy/flow_watches.ts";
import type { WatchedPacket } from "../../proxy/packet_trace.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { answerFlow, type FlowParts } from "../control/answer_flow.ts";
import { ControlError } from "../control/control_client.ts";
import type { Query } from "../control/routes.ts";
import { startControlServer } from "../control/control_server.ts";
import { createForwarderTrace } from "./forwarder_watch.ts";

const PACKET: WatchedPacket = {
  family: "IPv4",
  from: undefined,
  sourcePort: parsePort(4000),
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(80),
  protocol: "TCP",
  comesFrom: "this machine",
};
const FLOW: WatchedFlow = {
  protocol: "TCP",
  client: parseIpAddress("10.0.0.1"),
  clientPort: 4000,
  to: PACKET.to,
  port: PACKET.port,
  service: "ns1/web:http/TCP" as ServicePortKey,
};

/** A forwarder behind a socket, and a watch of it. */
async function withWatch(
  act: (watches: FlowWatches, watch: Awaited<ReturnType<typeof startWatch>>) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const watches = new FlowWatches();
  const families = [{
    family: "IPv4",
    backend: { connections: { watches, refresh: () => Promise.resolve() } },
  }];
  const parts = { clock: systemClock, families } as unknown as FlowParts;
  const path = `${folder}/control.sock`;
  const routes = { "/flow": (query: Query<"/flow">) => answerFlow(parts, query) };
  const server = await startControlServer({ path, routes });
  try {
    await using watch = await startWatch(path);
    await act(watches, watch);
  } finally {
    await server.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

async function startWatch(controlSocket: string) {
  const start = createForwarderTrace(systemClock, controlSocket, "trace-7");
  return await start(PACKET, { signal: new AbortController().signal });
}

Deno.test("a forwarder's watch is set when it has begun, and reports where a flow went", async () => {
  await withWatch(async (watches, watch) => {
    assertEquals(watches.isIdle, false);
    const endpoint = "10.1.0.1:8080" as EndpointKey;
    watches.report({ ...FLOW, endpoint, seenAs: parseIpAddress("10.1.0.9") }, systemClock.now());
    await watch.seen;
    const path = await watch.path({ service: "ns1/web:http/TCP" });
    assertEquals([path.ending, path.endpoint, path.seenAs], ["went on", endpoint, "10.1.0.9"]);
    assertEquals(path.steps.map(({ place }) => place), ["listener 10.96.0.1:80/TCP", "forwarder"]);
  });
});

Deno.test("a forwarder's watch reports why a flow was refused", async () => {
  await withWatch(async (watches, watch) => {
    watches.report({ ...FLOW, detail: "closed: refused" }, systemClock.now());
    const path = await watch.path({});
    assertEquals([path.ending, path.steps.at(-1)?.rule], ["rejected", "closed: refused"]);
  });
});

Deno.test("a forwarder's watch reports if nothing was accepted", async () => {
  await withWatch(async (_, watch) => {
    assertEquals((await watch.path({})).ending, "not seen");
  });
});

Deno.test("a forwarder's watch needs a kube-relay that runs", async () => {
  await assertRejects(
    () => startWatch("/nonexistent/control.sock"),
    ControlError,
    "no program listens",
  );
});
