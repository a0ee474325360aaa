import { assertEquals } from "@std/assert";
import {
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { planSettingsOf } from "../run/plan_settings.ts";
import { FamilyProxy } from "./family_proxy.ts";
import type { ServiceSyncListener } from "./service_sync_event.ts";

function createStage(
  { usesConntrack, backend = new FakeBackend(), listeners = [] }: {
    readonly usesConntrack: boolean;
    readonly backend?: FakeBackend;
    readonly listeners?: readonly ServiceSyncListener[];
  },
) {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const quarantined: number[] = [];
  const configuration = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
  const proxy = new FamilyProxy({
    ...{ clock, logger, listeners: [], serviceListeners: listeners },
    backend: Object.assign(backend, { usesConntrack }),
    metrics: {
      syncQueued() {},
      syncFinished() {},
      syncFailed() {},
      syncSucceeded: (_, figures) => void quarantined.push(figures.quarantined),
    },
  }, {
    family: "IPv4",
    node: testNodeState(),
    settings: planSettingsOf(configuration, { nodeName: "node-a", mode: "iptables" }),
    runner: { minPeriodMs: 0, maxPeriodMs: 3_600_000, retryMs: () => 200 },
  });
  return { pipeline: proxy.pipeline, loop: proxy.loop, logger, quarantined };
}

/** Two Services with one external IP, the older one last by name. */
const [OLDER, NEWER] = ["z", "a"].map((name, index) => {
  const { metadata, ...service } = testService(name, {
    clusterIP: `172.30.0.${index + 1}`,
    externalIPs: ["203.0.113.1"],
  });
  const creationTimestamp = `2026-01-0${index + 1}T00:00:00Z`;
  return { ...service, metadata: { ...metadata, creationTimestamp } };
});

Deno.test("SyncLoop of Services names the newer of two Services with one address in a mode of the kernel", async () => {
  const { pipeline, loop, logger, quarantined } = createStage({ usesConntrack: true });
  for (const service of [OLDER, NEWER]) pipeline.onService(undefined, service);
  assertEquals(await loop.sync(), "done", "trying again would change nothing");
  const lacking = loop.quarantined.map(({ key, address }) => `${key} ${address}`);
  assertEquals(lacking, ["ns1/a/TCP 203.0.113.1:80/TCP"]);
  assertEquals(await loop.sync(), "unchanged");
  pipeline.onService(OLDER, undefined);
  await loop.sync();
  assertEquals(loop.quarantined, []);
  assertEquals(quarantined, [1, 1, 0]);
  const reported = logger.lines.filter(({ level }) => level !== "verbose");
  assertEquals(reported.map(({ message }) => message), [
    "Service port is in quarantine; it is tried again, all others work",
    "Service port is out of quarantine",
  ]);
});

Deno.test("SyncLoop of Services logs a problem of an object once, and its text once in the line", async () => {
  const { pipeline, loop, logger } = createStage({ usesConntrack: true });
  const slice = testEndpointSlice("web", { endpoints: ["nonsense"] });
  for (let times = 0; times < 2; times++) {
    pipeline.onEndpointSlice(slice, "set");
    await loop.sync();
    pipeline.onEndpointSlice(slice, "delete");
    await loop.sync();
  }
  const warnings = logger.lines.filter(({ level }) => level === "warn");
  assertEquals(warnings.map(({ fields }) => fields), [{
    component: "sync_loop",
    kind: "EndpointSlice",
    object: "ns1/web-1",
    path: "endpoints[0].addresses",
    value: "nonsense",
  }]);
});

Deno.test("SyncLoop of Services reports that a sync changed nothing, for an endpoint that is not ready", async () => {
  const { pipeline, loop } = createStage({ usesConntrack: true });
  const slice = (ready: boolean) =>
    testEndpointSlice("web", { endpoints: [{ addresses: ["10.1.0.1"], conditions: { ready } }] });
  pipeline.onService(undefined, testService("web"));
  assertEquals(await loop.sync(), "done");
  pipeline.onEndpointSlice(slice(false), "set");
  assertEquals(await loop.sync(), "unchanged");
  pipeline.onEndpointSlice(slice(true), "set");
  assertEquals(await loop.sync(), "done");
});

Deno.test("SyncLoop of Services changes nothing before the followers are ready", async () => {
  const ready = Promise.withResolvers<void>();
  const reported: string[] = [];
  const listener: ServiceSyncListener = {
    on(event) {
      if (event.kind !== "syncing" && event.kind !== "synced") return undefined;
      const { kind, plan, changes: { upserted } } = event;
      const moment = kind === "syncing" ? "before" : "after";
      reported.push(`${moment} ${upserted.size} of ${plan.services.size}`);
      return kind === "syncing" ? ready.promise : undefined;
    },
  };
  const backend = new FakeBackend();
  backend.failures.push(new Error("busy"));
  const stage = createStage({ usesConntrack: true, backend, listeners: [listener] });
  stage.pipeline.onService(undefined, OLDER);
  const syncing = stage.loop.sync();
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  assertEquals([reported, backend.syncs.length], [["before 1 of 1"], 0]);
  ready.resolve();
  assertEquals([await syncing, backend.syncs.length], ["retry", 1]);
  assertEquals(await stage.loop.sync(), "done");
  assertEquals(
    reported,
    ["before 1 of 1", "before 1 of 1", "after 1 of 1"],
    "a failure is not reported",
  );
});
