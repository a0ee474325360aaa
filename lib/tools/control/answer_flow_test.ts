import { assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "../../os/clock.ts";
import { FlowWatches } from "../../proxy/flow_watches.ts";
import { answerFlow, type FlowParts } from "./answer_flow.ts";
import { BadQuestion } from "./control_server.ts";

const QUERY = {
  ...{ id: "trace-7", protocol: "UDP", to: "10.96.0.1", port: "53" },
  ...{ from: "10.0.0.1", sourcePort: "4000" },
};

function parts(watches?: FlowWatches): FlowParts {
  const backend = {
    ...(watches && { connections: { watches, refresh: () => Promise.resolve() } }),
  } as FlowParts["families"][0]["backend"];
  return { clock: systemClock, families: [{ family: "IPv4", backend }] };
}

Deno.test("answerFlow() begins a watch", async () => {
  const watches = new FlowWatches();
  assertEquals(await answerFlow(parts(watches), QUERY), []);
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
    const ask = () => answerFlow(parts(new FlowWatches()), query);
    await assertRejects(ask, BadQuestion, "Cannot watch", JSON.stringify(wrong));
  }
  await assertRejects(() => answerFlow(parts(), QUERY), BadQuestion, "sees no connections");
});
