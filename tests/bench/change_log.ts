/**
 * Measures the cost of the change log: changes of slices through one family's proxy, with the log
 * and without it. Run: deno run tests/bench/change_log.ts
 *
 * @module
 */
import { defaultConfiguration } from "../../lib/config/configuration.ts";
import { syncedEvent } from "../support/builders/sync_events.ts";
import { RunChanges } from "../../lib/tools/changes/run_changes.ts";
import { FamilyProxy } from "../../lib/app/service/family_proxy.ts";
import { planSettingsOf } from "../../lib/app/run/plan_settings.ts";
import {
  serviceLoop,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../support/builders/builders.ts";
import { FakeBackend } from "../support/fakes/fake_backend.ts";
import { FakeClock } from "../support/fakes/fake_clock.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";

const SERVICES = 1000;
const SECONDS = 60;
const ENDPOINTS = 20;

function createProxy(log: RunChanges | undefined, clock: FakeClock): FamilyProxy {
  const configuration = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
  return new FamilyProxy({
    ...{ clock, logger: new MemoryLogger(), serviceListeners: [], listeners: [] },
    backend: new FakeBackend(),
    metrics: { syncQueued() {}, syncFinished() {}, syncFailed() {}, syncSucceeded() {} },
    ...(log && {
      recorder: log.followServices(serviceLoop("IPv4"), 1000),
    }),
  }, {
    family: "IPv4",
    node: testNodeState(),
    settings: planSettingsOf(configuration, { nodeName: "node-a", mode: "userspace" }),
    runner: { minPeriodMs: 1000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
  });
}

function sliceOf(service: number, generation: number) {
  const endpoints = Array.from(
    { length: ENDPOINTS },
    (_, index) => `10.${generation & 255}.${service & 255}.${index + 1}`,
  );
  return testEndpointSlice(`s${service}`, { endpoints });
}

/** Milliseconds for a minute of 1,000 changes in each second. */
async function measure(log: RunChanges | undefined, clock: FakeClock): Promise<number> {
  const proxy = createProxy(log, clock);
  await proxy.start();
  let slices = Array.from({ length: SERVICES }, (_, index) => sliceOf(index, 0));
  for (const [index, slice] of slices.entries()) {
    const clusterIP = `172.30.${index >> 8}.${index & 255}`;
    proxy.onService(undefined, testService(`s${index}`, { clusterIP }));
    proxy.onEndpointSlice(slice, "set");
  }
  proxy.open();
  for (let turn = 0; turn < 10; turn++) await clock.advance(500);
  let spentMs = 0;
  for (let second = 1; second <= SECONDS; second++) {
    const next = slices.map((_, index) => sliceOf(index, second));
    const startedAt = performance.now();
    for (const [index, slice] of next.entries()) {
      proxy.onEndpointSlice(slice, "set", { previous: slices[index] });
    }
    for (let turn = 0; turn < 10; turn++) await clock.advance(100);
    spentMs += performance.now() - startedAt;
    slices = next;
  }
  await proxy.stop();
  return spentMs;
}

/** Microseconds that the log alone takes for one change, the words at the end of each sync included. */
function recorderCost(): number {
  const clock = new FakeClock();
  const log = new RunChanges({ clock });
  const recorder = log.followServices(serviceLoop("IPv4"), 1000);
  const report = { full: false, services: SERVICES, operations: { rules: 9 }, quarantined: [] };
  const changes = Array.from(
    { length: SERVICES },
    (_, index) => ({ previous: sliceOf(index, 0), current: sliceOf(index, 1) }),
  );
  const startedAt = performance.now();
  for (let second = 0; second < SECONDS; second++) {
    for (const change of changes) recorder.seen({ kind: "EndpointSlice", ...change });
    recorder.drained();
    const times = { startedAt: second, plannedAt: second };
    recorder.on({ ...syncedEvent(serviceLoop("IPv4")), kind: "synced", times, report });
  }
  return (performance.now() - startedAt) * 1000 / (SERVICES * SECONDS);
}

const results: { readonly name: string; readonly ms: number }[] = [];
let kept: RunChanges | undefined;
for (const name of ["warm-up", "without", "with", "without", "with"]) {
  const clock = new FakeClock();
  const log = name === "with" ? new RunChanges({ clock }) : undefined;
  results.push({ name, ms: await measure(log, clock) });
  kept = log ?? kept;
}
const best = (wanted: string) =>
  Math.min(...results.filter(({ name }) => name === wanted).map(({ ms }) => ms));
const changes = SERVICES * SECONDS;
const each = (ms: number) => `${(ms * 1000 / changes).toFixed(2)} µs`;
// deno-lint-ignore no-console -- it is what it is run for
console.log(
  `${changes} changes: ${each(best("without"))} each without the log, ${
    each(best("with"))
  } with it; ` +
    `the log alone ${recorderCost().toFixed(2)} µs; ` +
    `${kept?.recent().entries.length} entries of about ${kept?.bytes} bytes`,
);
