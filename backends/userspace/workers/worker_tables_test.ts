import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { ServiceTrafficTable } from "../../../lib/proxy/service_traffic.ts";
import { WorkerForwarder } from "./worker_tables.ts";

Deno.test("WorkerForwarder counts in one row, also if there is room for another one later", () => {
  const table = new ServiceTrafficTable({ maxServices: 1 });
  const traffic = table.of("IPv4");
  const first = testServicePlan({ name: "first" });
  const figures = (open: number) => ({
    connections: open,
    traffic: {
      ...{ bytesFromClients: 0, bytesToClients: 0, packetsFromClients: 0, packetsToClients: 0 },
      ...{ opened: 5, open },
    },
  });
  traffic.enter(first.name);
  const forwarder = new WorkerForwarder(
    { clock: new FakeClock(), traffic, end() {}, skip() {}, touch() {} },
    testServicePlan({ name: "second" }),
  );
  forwarder.count(0, figures(5));
  traffic.leave(first.name);
  forwarder.count(0, figures(0));
  assertEquals(
    [...table.rows()].map(({ name, traffic: { opened, open } }) => [name, opened, open]),
    [[undefined, 5, 0]],
  );
});
