import { assertEquals, assertRejects } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { systemClock } from "../../os/clock.ts";
import { FlowWatches } from "../../proxy/flow_watches.ts";
import { answerFlow, type FlowParts, flowRoute } from "./answer_flow.ts";
import { BadQuestion } from "./control_server.ts";

const QUERY = {
  protocol: "UDP",
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(53),
  from: parseIpAddress("10.0.0.1"),
  sourcePort: parsePort(4000),
} as const;

function parts(watches?: FlowWatches): FlowParts {
  const backend = {
    ...(watches && { connections: { watches, refresh: () => Promise.resolve() } }),
  } as FlowParts["families"][0]["backend"];
  return { clock: systemClock, families: [{ family: "IPv4", backend }] };
}

function ask(route: string, watches = new FlowWatches()) {
  return answerFlow(parts(watches), new URL(route, "http://localhost").searchParams);
}

Deno.test("answerFlow() parses the request of flowRoute(), and begins a watch", async () => {
  const watches = new FlowWatches();
  assertEquals(await ask(flowRoute("trace-7", QUERY), watches), []);
  assertEquals(watches.isIdle, false);
});

Deno.test("answerFlow() refuses an invalid request, and a mode that sees no connections", async () => {
  const good = flowRoute("a", QUERY);
  for (
    const wrong of [
      "/flow",
      good.replace("id=a", "id=a%20b"),
      good.replace("UDP", "ICMP"),
      good.replace("10.96.0.1", "x"),
      good.replace("port=53", "port=0"),
      good.replace("sourcePort=4000", "sourcePort=-1"),
      flowRoute("a", { ...QUERY, to: parseIpAddress("fd00::1") }),
    ]
  ) await assertRejects(() => ask(wrong), BadQuestion, "Cannot watch", wrong);
  await assertRejects(
    () => answerFlow(parts(), new URL(good, "http://localhost").searchParams),
    BadQuestion,
    "sees no connections",
  );
});
