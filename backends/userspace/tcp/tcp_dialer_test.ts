import { assertEquals } from "@std/assert";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { type FakeAnswer, FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { testServicePlan, testSharedPlan } from "../../../tests/support/builders/service_plans.ts";
import type { EngineConnection } from "../engine.ts";
import { EndpointPicker } from "../endpoint_picker.ts";
import { serviceAddresses } from "../listeners.ts";
import { Forwarding } from "../forwarding.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { DialFailure } from "./tcp_dialer.ts";

const [A, B, C] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"] as const;

const [AT] = serviceAddresses(testServicePlan(), testSharedPlan());

function setUp(answers: Record<string, FakeAnswer>) {
  const clock = new FakeClock();
  const network = new FakeNetwork();
  for (const [endpoint, answer] of Object.entries(answers)) network.answers.set(endpoint, answer);
  const edges = { clock, network, logger: new MemoryLogger() };
  const { counters, dialer } = new Forwarding(edges, { udpTimeoutMs: 1000 });
  const plan = testServicePlan({ to: Object.keys(answers), affinityTimeoutSeconds: 60 });
  const picker = new EndpointPicker(plan);
  let result: EngineConnection | DialFailure | undefined;
  const dial = () => {
    const request = { verdict: "internal", client: "192.0.2.1", at: AT! } as const;
    dialer.dial(picker, request, (r) => result = r.kind === "connected" ? r.connection : r);
  };
  return { clock, network, counters, dialer, picker, dial, result: () => result };
}

Deno.test("TcpDialer.dial() waits 250 ms, 500 ms, 1 s and 2 s, each time for another endpoint", async () => {
  const { clock, network, counters, dial, result } = setUp({
    [A]: "hang",
    [B]: "hang",
    [C]: "hang",
  });
  dial();
  const seen: number[] = [];
  for (const waitMs of [249, 51, 450, 50, 950, 100, 1900, 150]) {
    await clock.advance(waitMs);
    seen.push(network.dials.length);
  }
  assertEquals(seen, [1, 2, 2, 3, 3, 4, 4, 4]);
  assertEquals(new Set(network.dials.slice(0, 3)).size, 3);
  assertEquals((result() as DialFailure).kind, "unreachable");
  assertEquals([counters.dialFailures, counters.dialTimeouts], [4, 4]);
});

Deno.test("TcpDialer.dial() gives the only endpoint more time when it is slow", async () => {
  const { clock, network, dial } = setUp({ [A]: "hang" });
  dial();
  await clock.advance(300);
  assertEquals(network.dials, [A, A]);
  await clock.advance(10_000);
  assertEquals(network.dials, [A, A, A, A]);
});

Deno.test("TcpDialer.dial() lets an attempt be late while its endpoint takes others, for two seconds", async () => {
  const { clock, network, counters, dial } = setUp({ [A]: "hang" });
  dial();
  await clock.advance(100);
  network.answers.set(A, "accept");
  dial();
  await clock.advance(1800);
  assertEquals([network.dials.length, counters.dialTimeouts], [2, 0]);
  network.answers.set(A, "hang");
  await clock.advance(300);
  assertEquals([network.dials.length, counters.dialTimeouts], [3, 1]);
  await clock.advance(600);
  assertEquals([network.dials.length, counters.dialTimeouts], [4, 2]);
  await clock.advance(60_000);
});

Deno.test("TcpDialer.dial() asks an endpoint that refused only once", async () => {
  const { clock, network, dial, result } = setUp({ [A]: "refuse", [B]: "refuse" });
  dial();
  await settle();
  assertEquals(network.dials, [A, B]);
  assertEquals(result(), {
    kind: "unreachable",
    attempts: [`${A} (ECONNREFUSED)`, `${B} (ECONNREFUSED)`],
  } as never);
  await clock.advance(10_000);
  assertEquals(network.dials, [A, B]);
});

Deno.test("TcpDialer.dial() goes back to the slow endpoint when the other refuses", async () => {
  const { clock, network, dial } = setUp({ [A]: "hang", [B]: "refuse" });
  dial();
  await clock.advance(10_000);
  assertEquals(network.dials, [A, B, A, A]);
});

Deno.test("TcpDialer.dial() blames no endpoint when there are no sockets left", async () => {
  const { network, dial, result } = setUp({ [A]: "out-of-sockets", [B]: "accept" });
  dial();
  await settle();
  assertEquals(network.dials, [A]);
  assertEquals((result() as DialFailure).kind, "out-of-sockets");
});

Deno.test("TcpDialer sets one timer for all attempts of a kind", async () => {
  const { clock, dial } = setUp({ [A]: "hang" });
  for (let count = 0; count < 100; count++) dial();
  await settle();
  assertEquals(clock.pendingTimers, 1);
  await clock.advance(10_000);
  assertEquals(clock.pendingTimers, 0);
});
