import { assert, assertEquals } from "@std/assert";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { apiErrorFromStatus } from "./api_error.ts";
import type { KubeClient } from "./client.ts";
import { type KubeEvent, nodeRegarding } from "./event.ts";
import { EventRecorder } from "./event_recorder.ts";
import { TransportError } from "./transport.ts";
import { KubeAuthError } from "./kube_auth.ts";

const EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events";

/** Answers in order; missing answers are successes. */
class FakeEventClient {
  readonly sent: string[] = [];
  readonly bodies: Record<string, unknown>[] = [];
  readonly failures: (Error | undefined)[] = [];
  /** No answer comes until a request is taken back. */
  hangs = false;

  create(path: string, object: unknown, signal: AbortSignal): Promise<unknown> {
    const answer = this.#answer(`create ${path}`, object);
    if (!this.hangs) return answer;
    return new Promise((_, reject) =>
      signal.addEventListener("abort", () => reject(signal.reason), { once: true })
    );
  }

  patch(path: string, patch: unknown): Promise<unknown> {
    return this.#answer(`patch ${path.replace(/[^/.]+$/, "N")}`, patch);
  }

  #answer(line: string, body: unknown): Promise<unknown> {
    this.sent.push(line.replace(EVENTS, "EVENTS"));
    this.bodies.push(body as Record<string, unknown>);
    const failure = this.failures.shift();
    return failure ? Promise.reject(failure) : Promise.resolve({});
  }
}

interface Stage {
  readonly clock: FakeClock;
  readonly recorder: EventRecorder;
  readonly client: FakeEventClient;
  readonly logger: MemoryLogger;
}

function createStage(): Stage {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const client = new FakeEventClient();
  const recorder = new EventRecorder(clock, logger, () => 0.5, {
    controller: "kube-proxy",
    instance: "kube-proxy-host-a",
  });
  return { clock, recorder, client, logger };
}

async function withRecorder(
  run: (stage: Stage) => Promise<void>,
  before: (stage: Stage) => void = () => {},
): Promise<void> {
  const stage = createStage();
  const { clock, recorder, client } = stage;
  before(stage);
  const controller = new AbortController();
  const running = recorder.run(client as unknown as KubeClient, controller.signal);
  await settle();
  await run(stage);
  controller.abort();
  await running;
  assertEquals(clock.pendingTimers, 0);
}

function event(note = "a"): KubeEvent {
  return {
    type: "Normal",
    reason: "Starting",
    action: "StartKubeProxy",
    note,
    regarding: nodeRegarding("node-a"),
  };
}

function refusal(status: number): Error {
  return apiErrorFromStatus({ code: status, message: "no" }, { action: "create" });
}

Deno.test("EventRecorder cuts a note between characters, escapes what a terminal would obey, and uses the namespace", () =>
  withRecorder(async ({ recorder, client }) => {
    recorder.record(event("é".repeat(600)));
    recorder.record(event("a\u001b[2J\u009b1m\u202eb\nc"));
    const regarding = { apiVersion: "v1", kind: "Service", name: "web", namespace: "demo" };
    recorder.record({ ...event("c"), regarding });
    await settle();
    assertEquals(client.sent.at(-1), "create /apis/events.k8s.io/v1/namespaces/demo/events");
    assertEquals(client.bodies.map(({ note }) => note), [
      "é".repeat(512),
      "a\\u001b[2J\\u009b1m\\u202eb\\u000ac",
      "c",
    ]);
  }));

Deno.test("EventRecorder makes a series of the second event, and counts on in silence", () =>
  withRecorder(async ({ clock, recorder, client }) => {
    recorder.record(event());
    await settle();
    for (let n = 0; n < 4; n++) {
      recorder.record(event());
      await settle();
    }
    assertEquals(client.sent, ["create EVENTS", "patch EVENTS/node-a.N"]);
    assertEquals((client.bodies[1]?.series as { count: number }).count, 2);
    await clock.advance(6 * 60_000);
    assertEquals((client.bodies[2]?.series as { count: number }).count, 5);
    recorder.record(event());
    await settle();
    assertEquals(client.sent.slice(3), ["create EVENTS"]);
  }));

Deno.test("EventRecorder sends the count of a series that goes on every half an hour", () =>
  withRecorder(async ({ clock, recorder, client }) => {
    for (let minute = 0; minute < 40; minute++) {
      recorder.record(event());
      await clock.advance(60_000);
    }
    const counts = client.bodies.map(({ series }) =>
      (series as { count: number } | undefined)?.count
    );
    assertEquals(counts, [undefined, 2, 36]);
  }));

Deno.test("EventRecorder sends events that came twice before the first was sent by one request", () =>
  withRecorder(async ({ client }) => {
    assertEquals(client.sent, ["create EVENTS"]);
    assertEquals((client.bodies[0]?.series as { count: number }).count, 2);
    await settle();
  }, ({ recorder }) => {
    recorder.record(event());
    recorder.record(event());
  }));

Deno.test("EventRecorder makes a new object if that of a series has expired", () =>
  withRecorder(async ({ recorder, client }) => {
    recorder.record(event());
    await settle();
    client.failures.push(refusal(404));
    recorder.record(event());
    await settle();
    assertEquals(client.sent.slice(1), ["patch EVENTS/node-a.N", "create EVENTS"]);
    assertEquals((client.bodies[2]?.series as { count: number }).count, 2);
  }));

Deno.test("EventRecorder tries 12 times about 10 s apart without an answer, then continues", () =>
  withRecorder(async ({ clock, recorder, client, logger }) => {
    const failure = new TransportError("connect", "refused");
    client.failures.push(...Array.from({ length: 12 }, () => failure));
    recorder.record(event());
    await clock.advance(11_249);
    assertEquals(client.sent.length, 1);
    await clock.advance(1);
    assertEquals(client.sent.length, 2);
    await clock.advance(10 * 11_250);
    assertEquals(client.sent.length, 12);
    assertEquals(logger.lines.filter(({ level }) => level === "warn").length, 1);
    recorder.record(event("b"));
    await clock.advance(0);
    assertEquals(client.sent.length, 13);
  }));

Deno.test("EventRecorder does not repeat a rejected event, and warns once", () =>
  withRecorder(async ({ clock, recorder, client, logger }) => {
    client.failures.push(undefined, refusal(403), refusal(422));
    for (const note of ["accepted", "a", "b"]) recorder.record(event(note));
    await clock.advance(60_000);
    assertEquals(client.sent, ["create EVENTS", "create EVENTS", "create EVENTS"]);
    assertEquals(logger.lines.map(({ level }) => level), ["warn", "verbose"]);
  }));

Deno.test("EventRecorder repeats the first event while a server that has just started refuses it", () =>
  withRecorder(async ({ clock, recorder, client, logger }) => {
    const noCredentials = new KubeAuthError("Cannot get credentials: no network");
    const refusals = [401, 403, 503, 429, 403].map(refusal);
    client.failures.push(noCredentials, ...refusals);
    recorder.record(event());
    await clock.advance(90_000);
    assertEquals([client.sent.length, logger.lines], [7, []]);
  }));

Deno.test("EventRecorder gives up at last, and later ones at once, if it may not create events", () =>
  withRecorder(async ({ clock, recorder, client }) => {
    client.failures.push(...Array(13).fill(refusal(403)));
    recorder.record(event("a"));
    recorder.record(event("b"));
    await clock.advance(150_000);
    assertEquals(client.sent.length, 13);
  }));

Deno.test("EventRecorder sends events that are recorded right before the end", async () => {
  const { recorder, client, clock } = createStage();
  const controller = new AbortController();
  const running = recorder.run(client as unknown as KubeClient, controller.signal);
  await settle();
  recorder.record(event("why it ends"));
  controller.abort();
  await running;
  assertEquals(client.bodies.map(({ note }) => note), ["why it ends"]);
  recorder.record(event("before it began"));
  await recorder.run(client as unknown as KubeClient, controller.signal);
  assertEquals(client.bodies[1]?.note, "before it began");
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("EventRecorder waits 2 s for the last answer, and not for a server that is away", async () => {
  const { recorder, client, clock } = createStage();
  const controller = new AbortController();
  client.hangs = true;
  recorder.record(event());
  let ended = false;
  const running = recorder.run(client as unknown as KubeClient, controller.signal)
    .then(() => ended = true);
  await clock.advance(60_000);
  controller.abort();
  await clock.advance(1999);
  assertEquals(ended, false);
  await clock.advance(1);
  await running;
  client.hangs = false;
  client.failures.push(new TransportError("connect", "refused"));
  for (const note of ["b", "c", "d"]) recorder.record(event(note));
  await recorder.run(client as unknown as KubeClient, controller.signal);
  assertEquals(client.sent.length, 2);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("EventRecorder keeps 1000 events and drops more", () =>
  withRecorder(async ({ client, logger }) => {
    await settle();
    while (client.sent.length < 1000) await settle();
    for (let n = 0; n < 10; n++) await settle();
    assertEquals(client.sent.length, 1000);
    assertEquals(logger.lines.length, 5);
    assert(logger.lines.every(({ level }) => level === "verbose"));
    const names = client.bodies.map(({ metadata }) => (metadata as { name: string }).name);
    assertEquals(new Set(names).size, 1000);
  }, ({ recorder }) => {
    for (let n = 0; n < 1005; n++) recorder.record(event(`${n}`));
  }));
