import { assertEquals } from "@std/assert";
import { testEndpointSlice, testNodeState, testService } from "../../tests/support/builders.ts";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import type { LocalTrafficDetector } from "../proxy/local_traffic.ts";
import type { PlanSettings } from "./plan_settings.ts";
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

function createPipeline(options: { readonly allowExternalIps?: boolean } = {}): ProxyPipeline {
  return new ProxyPipeline({ clock: new FakeClock() }, {
    family: "IPv4",
    node: testNodeState(),
    settings: settings(false),
    ...options,
  });
}

Deno.test("ProxyPipeline.setSettings() has every Service planned anew, once", async () => {
  const pipeline = createPipeline();
  for (const name of ["a", "b"]) {
    pipeline.onService(undefined, testService(name));
    pipeline.onEndpointSlice(testEndpointSlice(name, { endpoints: ["10.0.0.1"] }), "set");
  }
  await pipeline.collectChanges([]);
  pipeline.confirmSynced();
  const masquerades = () =>
    [...pipeline.plan.services.values()].map(({ masqueradeInternal }) => masqueradeInternal);
  assertEquals([masquerades(), pipeline.pending], [["none", "none"], false]);
  pipeline.setSettings(settings(true));
  assertEquals(pipeline.pending, true);
  const { changes } = await pipeline.collectChanges([]);
  assertEquals([changes.everything, changes.upserted.size], [true, 2]);
  assertEquals(masquerades(), ["all", "all"]);
  pipeline.confirmSynced();
  assertEquals(pipeline.pending, false);
  assertEquals((await pipeline.collectChanges([])).changes.everything, false);
});

Deno.test("ProxyPipeline leaves out external IPs where they are not allowed", async () => {
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
