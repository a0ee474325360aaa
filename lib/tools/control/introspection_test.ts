import { assert, assertEquals } from "@std/assert";
import {
  serviceLoop,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import type { Backend } from "../../proxy/backend.ts";
import { RunChanges } from "../changes/run_changes.ts";
import { FamilyProxy } from "../../app/service/family_proxy.ts";
import { type IntrospectedParts, Introspection } from "./introspection.ts";
import { planSettingsOf } from "../../app/run/plan_settings.ts";

/** A backend that counts calls which only an inspection makes. */
class AskedBackend extends FakeBackend {
  readonly asked: string[] = [];
  override explain: Backend["explain"] = () => this.#note("explain", { carriers: [] });
  override compare: Backend["compare"] = () => this.#note("compare", Promise.resolve([]));
  override findMissing: Backend["findMissing"] = () =>
    this.#note("findMissing", Promise.resolve([]));

  #note<Answer>(what: string, answer: Answer): Answer {
    this.asked.push(what);
    return answer;
  }
}

/** One family with a change log, and questions to it; which of its parts were looked at is counted. */
async function createStage() {
  const clock = new FakeClock();
  const backend = new AskedBackend();
  const changes = new RunChanges({ clock });
  const proxy = new FamilyProxy({
    ...{ clock, logger: new MemoryLogger(), backend, serviceListeners: [], listeners: [] },
    metrics: { syncQueued() {}, syncFinished() {}, syncFailed() {}, syncSucceeded() {} },
    recorder: changes.followServices(serviceLoop("IPv4"), 1000),
  }, {
    family: "IPv4",
    node: testNodeState(),
    settings: planSettingsOf(
      { ...defaultConfiguration(), bindAddress: "0.0.0.0" },
      { nodeName: "node-a", mode: "userspace" },
    ),
    runner: { minPeriodMs: 1000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
  });
  const looked = new Set<PropertyKey>();
  const parts = new Proxy(
    { services: { families: [proxy] }, changes } as unknown as IntrospectedParts,
    {
      get(target, name, receiver) {
        looked.add(name);
        return Reflect.get(target, name, receiver);
      },
    },
  );
  await proxy.start();
  return { clock, backend, changes, proxy, parts, looked };
}

Deno.test("Introspection looks at nothing and sets no timer until it is asked", async () => {
  const { clock, backend, changes, proxy, parts, looked } = await createStage();
  proxy.onService(undefined, testService("web"));
  proxy.open();
  await clock.advance(5000);
  const timers = clock.pendingTimers;
  const { routes } = new Introspection(
    { clock, network: new FakeNetwork(), process: { pid: 1, kernelRelease: "6.1" } },
    parts,
  );
  for (let count = 0; count < 20; count++) {
    const addresses = [`10.1.0.${count + 1}`];
    proxy.onEndpointSlice(testEndpointSlice("web", { endpoints: [{ addresses }] }), "set");
    await clock.advance(5000);
  }
  assert(changes.recent().entries.length > 10, "there were no syncs");
  assertEquals(clock.pendingTimers, timers);
  assertEquals([...looked], []);
  assertEquals(backend.asked, []);
  assert(!JSON.stringify(changes.recent()).includes('"rules"'), "the log keeps names");

  const answer = await routes["/changes"]!(new URLSearchParams("last=1"));
  assert(!JSON.stringify(answer).includes('"rules"'), "names were not asked for");
  assertEquals(backend.asked, []);
  await routes["/changes"]!(new URLSearchParams("rules"));
  assertEquals(backend.asked, ["explain"]);
  await proxy.stop();
});
