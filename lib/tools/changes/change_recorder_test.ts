import { assert, assertEquals } from "@std/assert";
import {
  serviceLoop,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import type { SyncReport } from "../../proxy/data_plane.ts";
import { ServiceFamily, Services } from "../../app/service/services.ts";
import { planSettingsOf } from "../../app/run/plan_settings.ts";
import type { ChangeEntry } from "./change_entry.ts";
import { ChangeLog } from "./change_log.ts";

/** A backend whose syncs take time on the fake clock, or fail. */
class SlowBackend extends FakeBackend {
  readonly #clock: FakeClock;
  takesMs = 0;
  error: string | undefined;
  quarantined: SyncReport["quarantined"] = [];

  constructor(clock: FakeClock) {
    super();
    this.#clock = clock;
  }

  override async sync(...given: Parameters<FakeBackend["sync"]>): Promise<SyncReport> {
    if (this.takesMs > 0) await this.#clock.sleep(this.takesMs);
    if (this.error !== undefined) throw new Error(this.error);
    return { ...await super.sync(...given), quarantined: this.quarantined };
  }
}

function createStage() {
  const clock = new FakeClock();
  const log = new ChangeLog({ clock });
  const backend = new SlowBackend(clock);
  const configuration = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
  const settings = planSettingsOf(configuration, { nodeName: "node-a", mode: "userspace" });
  const recorder = log.followServices(serviceLoop("IPv4"), 1000);
  const proxy = new ServiceFamily(
    {
      ...{ clock, logger: new MemoryLogger(), backend, serviceListeners: [], listeners: [] },
      metrics: { syncQueued() {}, syncFinished() {}, syncFailed() {}, syncSucceeded() {} },
    },
    new Services({ clock, recorder }, "IPv4", settings, { node: testNodeState() }),
    { minPeriodMs: 1000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    recorder,
  );
  return { clock, log, backend, proxy, [Symbol.asyncDispose]: () => proxy.loop.stop() };
}

type Stage = ReturnType<typeof createStage>;

/** Opens with one Service, and empties the runner's bucket of tokens again. */
async function serving(): Promise<Stage> {
  const stage = createStage();
  await stage.proxy.start();
  stage.proxy.services.onService(undefined, testService("web"));
  stage.proxy.open();
  await stage.clock.advance(5000);
  return stage;
}

/** Gives `web` these endpoints in place of its former ones. */
function setEndpoints({ proxy }: Stage, before: readonly string[], after: readonly string[]): void {
  const [previous, current] = [before, after].map((endpoints) =>
    testEndpointSlice("web", { endpoints })
  );
  proxy.services.onSlice(previous, current);
}

/** Lets time pass, and as many turns as planning 10,000 Services in pieces takes. */
async function pass({ clock }: Stage, ms: number): Promise<void> {
  await clock.advance(ms);
  for (let turn = 0; turn < 200; turn++) await clock.advance(0);
}

/** The entries of syncs, each as its lines; the oldest first. */
function syncs({ log }: Pick<Stage, "log">): readonly (readonly string[])[] {
  return log.recent().entries.filter(({ kind }) => kind === "sync")
    .map(({ lines }) => lines.map(({ text }) => text));
}

function last({ log }: Stage): ChangeEntry {
  return log.recent().entries.findLast(({ kind }) => kind === "sync")!;
}

Deno.test("ChangeRecorder reports cause, effect and times of one change", async () => {
  await using stage = await serving();
  stage.backend.takesMs = 40;
  setEndpoints(stage, [], ["10.0.0.1"]);
  await stage.clock.advance(0);
  await stage.clock.advance(40);
  const { sequence: _, lines, ...entry } = last(stage);
  assertEquals(entry, {
    at: "2026-01-01T00:00:05.040Z",
    family: "IPv4",
    kind: "sync",
    outcome: "applied",
    waitedMs: 0,
    tookMs: 40,
  });
  assertEquals(lines, [
    {
      text: "EndpointSlice ns1/web-1 updated",
      object: "ns1/web-1",
    },
    {
      tone: "effect",
      text: "-> ns1/web/TCP: refuses -> 1 endpoint, endpoint 10.0.0.1:80 new",
      item: "ns1/web/TCP",
    },
    { tone: "detail", text: "1 write (waited 0 ms, planned 0 ms, applied 40 ms)" },
  ]);
});

Deno.test("ChangeRecorder makes one cause of several changes that one sync takes", async () => {
  await using stage = await serving();
  stage.backend.takesMs = 300;
  setEndpoints(stage, [], ["10.0.0.1"]);
  await stage.clock.advance(100);
  // The sync runs: these two are of the next one.
  setEndpoints(stage, ["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]);
  setEndpoints(stage, ["10.0.0.1", "10.0.0.2"], ["10.0.0.2"]);
  await stage.clock.advance(5000);
  const [first, second] = syncs(stage).slice(-2);
  assertEquals(first!.slice(0, 2), [
    "EndpointSlice ns1/web-1 updated",
    "-> ns1/web/TCP: refuses -> 1 endpoint, endpoint 10.0.0.1:80 new",
  ]);
  assertEquals(second!.slice(0, 2), [
    "EndpointSlice ns1/web-1 updated (2 changes)",
    "-> ns1/web/TCP: endpoint 10.0.0.1:80 gone, endpoint 10.0.0.2:80 new",
  ]);
  const { waitedMs = 0, tookMs = 0 } = last(stage);
  assert(waitedMs >= 200 && tookMs >= waitedMs + 300, `it waited ${waitedMs} of ${tookMs} ms`);
});

Deno.test("ChangeRecorder keeps one entry of a change that fails and then succeeds", async () => {
  await using stage = await serving();
  stage.backend.error = "no such table";
  setEndpoints(stage, [], ["10.0.0.1"]);
  await stage.clock.advance(1000);
  const failing = last(stage);
  assertEquals(failing.outcome, "failed");
  const text = failing.lines.at(-1)!.text;
  assert(/^FAILED ([2-9]|\d\d) times, is tried again: no such table$/.test(text), text);
  const entries = stage.log.recent().entries.length;
  stage.backend.error = undefined;
  await stage.clock.advance(5000);
  const entry = last(stage);
  assertEquals(stage.log.recent().entries.length, entries, "no entry has come");
  assertEquals([entry.sequence, entry.outcome], [failing.sequence, "applied"]);
  const [cause, effect, , had] = entry.lines;
  assertEquals([cause?.object, effect?.item], ["ns1/web-1", "ns1/web/TCP"]);
  assert(/^Had failed \d+ times: no such table$/.test(had!.text), had!.text);
});

Deno.test("ChangeRecorder marks entries that are slow compared with the others", async () => {
  await using stage = await serving();
  stage.backend.takesMs = 30;
  const isSlow = () => last(stage).lines.some(({ text }) => text.startsWith("SLOW: "));
  for (let round = 0; round < 5; round++) {
    setEndpoints(stage, [`10.0.0.${round}`], [`10.0.0.${round + 1}`]);
    await stage.clock.advance(5000);
    assert(!isSlow());
  }
  stage.backend.takesMs = 4000;
  setEndpoints(stage, ["10.0.0.5"], ["10.0.0.9"]);
  await stage.clock.advance(5000);
  assert(isSlow());
});

Deno.test("ChangeRecorder makes one entry of a first sync of 10,000 Services, and one of their relist", async () => {
  await using stage = createStage();
  await stage.proxy.start();
  const services = Array.from(
    { length: 10_000 },
    (_, index) => testService(`s${index}`, { clusterIP: `172.30.${index >> 8}.${index & 255}` }),
  );
  for (const service of services) stage.proxy.services.onService(undefined, service);
  stage.proxy.open();
  await pass(stage, 5000);
  const [first, ...others] = syncs(stage);
  assertEquals(others, []);
  assertEquals(first!.length, 2 + 2 * 8 + 2);
  assertEquals(first![0], "First sync: everything that is known");
  assert(first!.includes("and 9,992 Services"), first!.join("\n"));
  assert(first!.includes("-> and 9,992 ServicePorts added"), first!.join("\n"));

  for (const [index, service] of services.entries()) {
    stage.proxy.services.onService(service, {
      ...service,
      spec: { ...service.spec, ports: [{ port: 81 }] },
    });
    // A list comes in pieces: here it takes three syncs.
    if (index % 4000 === 0) await pass(stage, 1000);
  }
  await pass(stage, 20_000);
  const bursts = syncs(stage).slice(1);
  // The syncs of single objects are those that ran before the others came.
  const reported = bursts.map((lines) => {
    const [, more = "0"] = /^and ([\d,]+) Services?$/m.exec(lines.join("\n")) ?? [];
    return lines.filter((line) => line.startsWith("Service ")).length +
      Number(more.replace(",", ""));
  });
  assertEquals(reported.reduce((sum, count) => sum + count), 10_000);
  assert(bursts.length <= 5, `${reported}`);
  assert(stage.log.bytes < 100_000, `${stage.log.bytes}`);
});

Deno.test("ChangeRecorder makes one cause of a Service that is deleted and added again among many", async () => {
  await using stage = await serving();
  const web = testService("web");
  // Its sync begins at once; the next one takes the rest.
  stage.proxy.services.onService(undefined, testService("first"));
  stage.proxy.services.onService(web, undefined);
  for (let number = 0; number < 100; number++) {
    stage.proxy.services.onService(undefined, testService(`service-${number}`));
  }
  stage.proxy.services.onService(undefined, { ...web, metadata: { ...web.metadata, labels: {} } });
  await pass(stage, 1000);
  const lines = syncs(stage).at(-1)!;
  assert(lines.includes("Service ns1/web updated (2 changes)"), lines.join("\n"));
  assert(lines.includes("and 93 Services"), lines.join("\n"));
});

Deno.test("ChangeRecorder reports quarantine once at its begin and once at its end", async () => {
  await using stage = await serving();
  stage.backend.quarantined = [{ key: "ns1/web/TCP" as never, reason: "address in use" }];
  setEndpoints(stage, [], ["10.0.0.1"]);
  await stage.clock.advance(10_000);
  stage.backend.quarantined = [];
  await stage.clock.advance(20_000);
  const reported = stage.log.recent().entries.filter((entry) => entry.kind === "quarantine");
  assertEquals(reported.flatMap(({ lines }) => lines.map(({ text }) => text)), [
    "QUARANTINE: ns1/web/TCP: address in use",
    "Out of quarantine: ns1/web/TCP",
  ]);
});
