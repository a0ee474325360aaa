import { assertEquals } from "@std/assert";
import { THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import {
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../tests/support/builders/builders.ts";
import { drainInSlices, type Trackers } from "./drain.ts";
import { EndpointsChangeTracker } from "./endpoints_changes.ts";
import { createProxyState } from "./proxy_state.ts";
import { ServiceChangeTracker } from "./service_changes.ts";

function createTrackers(): Trackers {
  return {
    services: new ServiceChangeTracker({ family: "IPv4" }),
    endpoints: new EndpointsChangeTracker({
      family: "IPv4",
      nodeName: THIS_NODE,
      startedAtMs: 0,
    }),
  };
}

/** A Service and its slice arrive. */
function arrive({ services, endpoints }: Trackers, name: string, protocol = "TCP"): void {
  const annotations = {
    "endpoints.kubernetes.io/last-change-trigger-time": "1970-01-01T00:00:01Z",
  };
  services.update(undefined, testService(name, { ports: [{ port: 80, protocol }] }));
  endpoints.updateSlice(
    testEndpointSlice(name, {
      endpoints: ["10.180.0.1"],
      ports: [{ name: "", port: 80, protocol }],
      metadata: { annotations },
    }),
    "set",
  );
}

Deno.test("drainInSlices() pauses every 256 Services and drains everything", async () => {
  const trackers = createTrackers();
  for (let index = 0; index < 600; index++) arrive(trackers, `svc-${index}`);
  const state = createProxyState(testNodeState());
  const sizes: number[] = [];
  const drained = await drainInSlices(trackers, state, {
    pause: () => {
      sizes.push(state.services.size);
      return undefined;
    },
  });
  assertEquals(sizes, [256, 512]);
  assertEquals([state.services.size, state.endpoints.size], [600, 600]);
  assertEquals([drained.dirty.keys.size, drained.services.size], [600, 600]);
  assertEquals([drained.dirty.shared, drained.dirty.everything], [true, true]);
  assertEquals(drained.triggerTimes, Array.from({ length: 600 }, () => 1000));
  assertEquals([trackers.services.pending, trackers.endpoints.pending], [0, 0]);
});

Deno.test("drainInSlices() drains changes that arrive during a pause", async () => {
  const trackers = createTrackers();
  for (let index = 0; index < 300; index++) arrive(trackers, `svc-${index}`);
  const state = createProxyState(testNodeState());
  let late: string | undefined = "late";
  const drained = await drainInSlices(trackers, state, {
    pause: () => {
      if (late) arrive(trackers, late, "UDP");
      late = undefined;
      return Promise.resolve();
    },
  });
  assertEquals([state.services.size, drained.dirty.keys.size], [301, 301]);
  assertEquals(drained.touchesUdp, true);
});

Deno.test("drainInSlices() accepts other changes, and does not pause for few items", async () => {
  const trackers = createTrackers();
  arrive(trackers, "web");
  const state = createProxyState(testNodeState());
  const pause = () => {
    throw new Error("Paused");
  };
  await drainInSlices(trackers, state, { pause });
  arrive(trackers, "api");
  const node = testNodeState({ zone: "zone-z" });
  const { dirty, touchesUdp } = await drainInSlices(trackers, state, { changes: { node }, pause });
  assertEquals<unknown>(dirty, {
    keys: new Set(["ns1/api/TCP"]),
    shared: true,
    everything: true,
  });
  assertEquals([state.node.zone, touchesUdp], ["zone-z", false]);
  const none = await drainInSlices(trackers, state, { pause });
  assertEquals<unknown>(none.dirty, { keys: new Set(), shared: false, everything: false });
});

Deno.test("drainInSlices() hands over problems", async () => {
  const trackers = createTrackers();
  trackers.services.update(undefined, testService("web", { externalIPs: ["nonsense"] }));
  trackers.endpoints.updateSlice(testEndpointSlice("web", { endpoints: ["nonsense"] }), "set");
  const state = createProxyState(testNodeState());
  const { problems } = await drainInSlices(trackers, state, { pause: () => undefined });
  assertEquals(problems.map(({ path }) => path), [
    "spec.externalIPs[0]",
    "endpoints[0].addresses",
  ]);
});
