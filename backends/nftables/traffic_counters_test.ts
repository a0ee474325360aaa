import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ServiceTrafficTable } from "../../lib/proxy/service_traffic.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { assertEquals } from "@std/assert";
import { TrafficCounters } from "./traffic_counters.ts";

const NAME = "ip kube-relay-counters";
const WEB = testServicePlan({ name: "web", clusterIp: "172.30.0.1", nodePort: 30080 });
const DNS = testServicePlan({ name: "dns", clusterIp: "172.30.0.2", protocol: "UDP", port: 53 });
const WEB_IN = "172.30.0.1 . tcp . 80 . original";
const WEB_OUT = "172.30.0.1 . tcp . 80 . reply";

class Stage {
  readonly machine = new FakeNftMachine();
  readonly logger = new MemoryLogger();
  readonly drift: unknown[] = [];
  readonly table = new ServiceTrafficTable();
  counters = this.#create();
  #plan: ProxyPlan | undefined;

  #create(): TrafficCounters {
    const { logger, machine: { commands }, table } = this;
    return new TrafficCounters(
      {
        clock: new FakeClock(),
        commands,
        logger,
        onDrift: (figures) => void this.drift.push(figures),
      },
      "IPv4",
      table.of("IPv4"),
      new OneAtATime(),
    );
  }

  async sync(...services: readonly ServicePlan[]): Promise<void> {
    const plan = testProxyPlan(services);
    await this.counters.sync(plan, testPlanChanges(plan, this.#plan));
    this.#plan = plan;
  }

  /** As after a change that affects all Services. */
  async syncEverything(...services: readonly ServicePlan[]): Promise<void> {
    this.#plan = undefined;
    await this.sync(...services);
  }

  /** Another process takes over. */
  restart(): void {
    this.#plan = undefined;
    this.counters = this.#create();
  }

  /** Packets in, bytes in, packets out of a Service. */
  of({ name }: ServicePlan): readonly number[] | undefined {
    const counted = this.table.of("IPv4").get(name);
    return counted && [
      counted.packetsFromClients,
      counted.bytesFromClients,
      counted.packetsToClients,
    ];
  }

  get elements(): readonly string[] {
    return [...this.machine.tool.table(NAME).elements.values()].flatMap((set) => [...set.keys()]);
  }
}

Deno.test("TrafficCounters sums the counters of a Service's frontends", async () => {
  const stage = new Stage();
  await stage.sync(WEB, DNS);
  stage.machine.packets.set(WEB_IN, 4).set(WEB_OUT, 3).set("tcp . 30080 . original", 2);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [6, 600, 3]);
  assertEquals(stage.of(DNS), undefined, "nothing came there");
  stage.machine.packets.set(WEB_IN, 5);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [7, 700, 3]);
  await stage.syncEverything(WEB, DNS);
  assertEquals(stage.of(WEB), [7, 700, 3]);
});

Deno.test("TrafficCounters counts nothing twice if the kernel repeats elements", async () => {
  const stage = new Stage();
  await stage.sync(WEB, DNS);
  stage.machine.packets.set(WEB_IN, 4).set(WEB_OUT, 3);
  await stage.counters.refresh();
  stage.machine.packets.set(WEB_IN, 5);
  stage.machine.tornListings = 1;
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [5, 500, 3]);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [5, 500, 3]);
});

Deno.test("TrafficCounters writes with the first sync and if frontends come or go, and reads only when asked", async () => {
  const stage = new Stage();
  await stage.sync(WEB);
  const before = stage.machine.commands.calls.length;
  const changed = testServicePlan({ ...{ name: "web", nodePort: 30080 }, to: ["10.0.0.9:80"] });
  await stage.sync({ ...WEB, internal: changed.internal });
  assertEquals(stage.machine.commands.calls.length, before, "other endpoints, same frontends");
  await stage.sync(DNS);
  assertEquals(stage.machine.commands.calls.slice(before).map(({ line }) => line), ["nft -f -"]);
  assertEquals(stage.elements, [
    "172.30.0.2 . udp . 53 . original",
    "172.30.0.2 . udp . 53 . reply",
  ]);
});

Deno.test("TrafficCounters forgets a removed Service with its counters", async () => {
  const stage = new Stage();
  await stage.sync(WEB);
  stage.machine.packets.set(WEB_IN, 4);
  await stage.counters.refresh();
  await stage.sync();
  assertEquals(stage.of(WEB), undefined);
  await stage.sync(WEB);
  stage.machine.packets.set(WEB_IN, 1);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [1, 100, 0], "the counter started again");
});

Deno.test("TrafficCounters adopts the counters of an earlier process, and removes its leftovers", async () => {
  const stage = new Stage();
  await stage.sync(WEB, DNS);
  stage.machine.packets.set(WEB_IN, 4);
  stage.restart();
  await stage.sync(WEB);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [4, 400, 0]);
  assertEquals(stage.elements.filter((key) => key.includes("udp")), []);
});

Deno.test("TrafficCounters repairs changes by other programs with the next reading", async () => {
  const harm = [
    `delete table ${NAME}\n`,
    `flush chain ${NAME} sent\n`,
    `add chain ${NAME} foreign\nadd rule ${NAME} foreign drop\n`,
    `add set ${NAME} foreign { type ipv4_addr ; }\n`,
    `delete element ${NAME} service-ips { ${WEB_IN} }\n`,
    `add element ${NAME} node-ports { sctp . 9 . reply }\n`,
    `delete element ${NAME} service-ips { ${WEB_IN} }\n` +
    `add element ${NAME} node-ports { sctp . 9 . reply }\n`,
  ];
  for (const text of harm) {
    const stage = new Stage();
    await stage.sync(WEB);
    await stage.counters.refresh();
    const before = structuredClone(stage.machine.tool.table(NAME));
    stage.machine.tool.run(text);
    await stage.counters.refresh();
    assertEquals(stage.machine.tool.table(NAME), before, text);
    assertEquals(stage.drift.length, 1, text);
    await stage.counters.refresh();
    assertEquals(stage.drift.length, 1, text);
  }
});

Deno.test("TrafficCounters counts what was read though the repair is refused", async () => {
  const stage = new Stage();
  await stage.sync(WEB, DNS);
  stage.machine.packets.set(WEB_IN, 3);
  stage.machine.tool.run(
    `delete element ${NAME} service-ips { 172.30.0.2 . udp . 53 . original }\n`,
  );
  stage.machine.judge = (line) => line.includes("172.30.0.2") ? "Not supported" : undefined;
  await stage.counters.tryRefresh();
  assertEquals(stage.of(WEB), [3, 300, 0]);
});

Deno.test("TrafficCounters lets no sync fail, and gives the reason once why nothing is counted", async () => {
  const stage = new Stage();
  stage.machine.judge = (line) => line.includes(" counter ;") ? "Not supported" : undefined;
  await stage.sync(WEB);
  await stage.sync(WEB, DNS);
  await stage.counters.tryRefresh();
  const messages = stage.logger.lines.map(({ message }) => message);
  assertEquals(messages, [
    "Cannot count the traffic of Services; they are still served",
    "Cannot read the traffic counters of Services",
  ]);
  assertEquals(stage.machine.tool.tables, []);
  stage.machine.judge = () => undefined;
  stage.machine.packets.set(WEB_IN, 3);
  await stage.counters.refresh();
  assertEquals(stage.of(WEB), [3, 300, 0], "who asks has it tried again");
  stage.machine.deleteTable(NAME);
  await stage.sync(WEB);
  await stage.sync(WEB, DNS, testServicePlan({ name: "late", clusterIp: "172.30.0.3" }));
  await stage.sync(WEB);
  assertEquals(stage.elements.length, 4, "a deleted table is created again");
});
