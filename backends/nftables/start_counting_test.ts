import { assert, assertEquals } from "@std/assert";
import { ServiceTrafficTable } from "../../lib/proxy/service_traffic.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { OneAtATime } from "../../lib/os/one_at_a_time.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import { countingSteps } from "./counting_table.ts";
import { countedFor, startCounting } from "./start_counting.ts";

const TABLE = "ip kube-relay-counters";

function stage() {
  const machine = new FakeNftMachine();
  const { commands } = machine;
  return {
    machine,
    dependencies: { clock: new FakeClock(), commands, logger: new MemoryLogger() },
  };
}

const options = () => ({ family: "IPv4", turns: new OneAtATime() }) as const;

Deno.test("startCounting() takes away what an earlier run left, where nobody asks for it any more", async () => {
  const { machine, dependencies } = stage();
  machine.tool.run([...atOnce(countingSteps("IPv4", { declares: true })).text()].join(""));
  assertEquals(machine.tool.tables, [TABLE]);
  const traffic = new ServiceTrafficTable().of("IPv4");
  assert(await startCounting({ ...dependencies, traffic }, options()));
  assertEquals(machine.tool.tables, [TABLE], "it goes on");
  assertEquals(await startCounting(dependencies, options()), undefined);
  assertEquals(machine.tool.tables, []);
});

Deno.test("startCounting() writes nothing where nobody asks and nothing is left", async () => {
  const { machine, dependencies } = stage();
  await startCounting(dependencies, options());
  assertEquals(machine.writes, []);
});

Deno.test("countedFor() tells what packets tell, of Services that had some", () => {
  const traffic = new ServiceTrafficTable().of("IPv4");
  const { name } = testServicePlan();
  assertEquals(countedFor({ name }, undefined), undefined);
  assertEquals(countedFor({ name }, traffic), undefined);
  Object.assign(traffic.enter(name), { packetsFromClients: 2, bytesFromClients: 99 });
  assertEquals(countedFor({ name }, traffic), {
    bytesFromClients: 99,
    bytesToClients: 0,
    packetsFromClients: 2,
    packetsToClients: 0,
  });
});
