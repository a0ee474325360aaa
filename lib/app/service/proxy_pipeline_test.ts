import { testPlanChanges } from "../../../tests/support/builders/service_plans.ts";
import { assertEquals } from "@std/assert";
import {
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { LocalTrafficDetector } from "../../proxy/local_traffic.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import { ProxyPipeline } from "./proxy_pipeline.ts";

const NONE: LocalTrafficDetector = { kind: "none" };

function settings(masqueradeAll: boolean): PlanSettings {
  return {
    nodeState: () => testNodeState(),
    planOptions: (family) => ({
      family,
      localTraffic: NONE,
      nodePortAddresses: { kind: "all" },
      masqueradeAll,
    }),
  };
}

function createPipeline(
  { clock = new FakeClock(), ...options }: {
    readonly clock?: Clock;
    readonly allowExternalIps?: boolean;
  } = {},
): ProxyPipeline {
  return new ProxyPipeline({ clock }, {
    family: "IPv4",
    node: testNodeState(),
    settings: settings(false),
    ...options,
  });
}

function confirm(pipeline: ProxyPipeline): void {
  const report = { full: false, operations: {}, quarantined: [], services: 0 };
  pipeline.synced(report, testPlanChanges(pipeline.plan));
}

Deno.test("ProxyPipeline.setSettings() has every Service planned again, once", async () => {
  const pipeline = createPipeline();
  for (const name of ["a", "b"]) {
    pipeline.onService(undefined, testService(name));
    pipeline.onEndpointSlice(testEndpointSlice(name, { endpoints: ["10.0.0.1"] }), "set");
  }
  await pipeline.collectChanges([]);
  confirm(pipeline);
  const masquerades = () =>
    [...pipeline.plan.services.values()].map(({ masqueradeInternal }) => masqueradeInternal);
  assertEquals([masquerades(), pipeline.pending], [["none", "none"], false]);
  pipeline.setSettings(settings(true));
  assertEquals(pipeline.pending, true);
  const { changes } = await pipeline.collectChanges([]);
  assertEquals([changes.everything, changes.upserted.size], [true, 2]);
  assertEquals(masquerades(), ["all", "all"]);
  confirm(pipeline);
  assertEquals(pipeline.pending, false);
  assertEquals((await pipeline.collectChanges([])).changes.everything, false);
});

Deno.test("ProxyPipeline has something pending from the first change until it is confirmed", async () => {
  const seen: boolean[] = [];
  const yieldToEventLoop = () => {
    seen.push(pipeline.pending);
    return Promise.resolve();
  };
  let ms = 0;
  const clock: Clock = Object.assign(new FakeClock(), { yieldToEventLoop, now: () => ms += 5 });
  const pipeline = createPipeline({ clock });
  for (let i = 0; i < 1_000; i++) pipeline.onService(undefined, testService(`s${i}`));
  seen.push(pipeline.pending);
  // What is looked at during the work is looked at between the trackers and the plan, too.
  await pipeline.collectChanges([]);
  seen.push(pipeline.pending);
  assertEquals([seen.length > 5, new Set(seen)], [true, new Set([true])]);
  confirm(pipeline);
  assertEquals(pipeline.pending, false);
});

Deno.test("ProxyPipeline has pending work while its environment differs from the plan", async () => {
  const pipeline = createPipeline();
  const changes = [
    () => pipeline.setNode(testNodeState({ zone: "elsewhere" })),
    () => pipeline.setServiceCidrs([parseCidr("10.96.0.0/12")]),
    () => pipeline.setInterfaceAddresses([parseIpAddress("192.0.2.7")]),
  ];
  for (const change of changes) {
    assertEquals([change(), pipeline.pending], [true, true]);
    assertEquals([change(), pipeline.pending], [false, true], "no news, but it waits");
    await pipeline.collectChanges([]);
    assertEquals(pipeline.pending, true);
    confirm(pipeline);
    assertEquals([change(), pipeline.pending], [false, false]);
  }
});

Deno.test("ProxyPipeline leaves out external IPs if they are not allowed", async () => {
  for (const allowExternalIps of [true, false]) {
    const pipeline = createPipeline({ allowExternalIps });
    pipeline.onService(undefined, testService("a", { externalIPs: ["192.0.2.7"] }));
    await pipeline.collectChanges([]);
    const addresses = [...pipeline.plan.services.values()].flatMap(({ externalIps }) =>
      externalIps
    );
    assertEquals(addresses.map(String), allowExternalIps ? ["192.0.2.7"] : []);
  }
});
