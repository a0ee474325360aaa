import { assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "../../os/clock.ts";
import { FlowWatches } from "../../proxy/flow_watches.ts";
import { answerFlow } from "./service_routes.ts";
import { BadQuestion } from "./control_server.ts";

const QUERY = {
  ...{ id: "trace-7", protocol: "UDP", to: "10.96.0.1", port: "53" },
  ...{ from: "10.0.0.1", sourcePort: "4000" },
};

type Families = Parameters<typeof answerFlow>[1];

function families(watches?: FlowWatches): Families {
  const backend = {
    ...(watches && { connections: { watches, refresh: () => Promise.resolve() } }),
  } as Families[0]["backend"];
  return [{ family: "IPv4", backend }];
}

Deno.test("answerFlow() begins a watch", async () => {
  const watches = new FlowWatches();
  assertEquals(await answerFlow(systemClock, families(watches), QUERY), []);
  assertEquals(watches.isIdle, false);
});

Deno.test("answerFlow() refuses an invalid request, and a mode that sees no connections", async () => {
  for (
    const wrong of [
      { id: undefined },
      { id: "a b" },
      { protocol: "ICMP" },
      { to: "x" },
      { port: "0" },
      { sourcePort: "-1" },
      { to: "fd00::1" },
    ]
  ) {
    const query = { ...QUERY, ...wrong };
    const ask = () => answerFlow(systemClock, families(new FlowWatches()), query);
    await assertRejects(ask, BadQuestion, "Cannot watch", JSON.stringify(wrong));
  }
  await assertRejects(
    () => answerFlow(systemClock, families(), QUERY),
    BadQuestion,
    "sees no connections",
  );
});
