import { assert, assertEquals } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import {
  followServices,
  ReflectorStage,
  service,
  SERVICES,
  SERVICES_PATH as PATH,
} from "../../tests/support/stages/reflector_stage.ts";

/** Longer than any test. */
const LONG_MS = 3_600_000;

Deno.test("Reflector.run() streams the list and watches on in the same request", () =>
  followServices(async (stage, fake) => {
    fake.store.create(service("c"));
    await stage.has("a", "b", "c");
    assertEquals(stage.asked, ["streaming list"]);
    const { phase, lastError, relists, lastEventAtMs, lastListAtMs } = stage.reflector.status;
    assertEquals([phase, lastError, relists], ["watching", undefined, 0]);
    assert(lastEventAtMs! >= lastListAtMs!);
  }));

for (const refusal of ["invalid", "error event"] as const) {
  Deno.test(`Reflector.run() lists in pages if a streaming list is refused (${refusal})`, () =>
    followServices(async (stage, fake) => {
      await stage.has("a", "b");
      fake.store.create(service("c"));
      await stage.has("a", "b", "c");
      assertEquals(stage.asked, ["streaming list", "list", "watch 1002"]);
      assertEquals(stage.handled, ["add a", "add b", "synced", "add c"]);
    }, { early: (fake) => fake.streamingLists = refusal }));
}

Deno.test("Reflector.run() asks without a field selector that the server doesn't know", () =>
  followServices(async (stage, fake) => {
    await eventually("the list is complete", () => stage.informer.synced);
    assertEquals(fake.requests.map(({ query }) => query.fieldSelector), [
      "spec.clusterIP!=None",
      undefined,
    ]);
    assertEquals(stage.reflector.status.lastError, undefined);
  }, { early: (fake) => fake.clusterIpSelector = false }));

Deno.test("Reflector.run() watches on from the version of a bookmark", () =>
  followServices(async (stage, fake) => {
    // Services of another kind change the version without an event for this watch.
    fake.store.create({ apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } });
    fake.forEachWatch((watch) => watch.sendBookmark());
    fake.forEachWatch((watch) => watch.end());
    await eventually("it watches again", () => stage.asked.length === 2);
    assertEquals(stage.asked, ["streaming list", "watch 1003"]);
  }));

Deno.test("Reflector.run() lists again at once when its version has expired, however often it failed before", () =>
  followServices(async (stage, fake) => {
    fake.failNext({ status: 503, watch: true, times: 3 });
    fake.forEachWatch((watch) => watch.end());
    fake.store.update(service("b", "10.0.0.2"));
    fake.compact();
    await eventually("it has the list", () => stage.reflector.status.relists === 1);
    // Waits of the failures, and none of the expiry.
    assertEquals(stage.waits, [20, 40, 80]);
  }, { timing: { freshListMs: 0 } }));

Deno.test("Reflector.run() waits between lists whose version expires at once", () =>
  followServices(async (stage, fake) => {
    fake.failNext({ status: 410, reason: "Expired", watch: true, times: LONG_MS });
    fake.streamingLists = "invalid";
    fake.forEachWatch((watch) => watch.end());
    await eventually("it waits", () => stage.waits.length >= 3);
    assertEquals(stage.waits.slice(0, 3), [20, 40, 80]);
    assert(stage.asked.length < 12, stage.asked.join());
  }));

Deno.test("Reflector.run() waits between lists whose second page expires each time", () =>
  followServices(async (stage) => {
    await eventually("it waits", () => stage.waits.length >= 3);
    assertEquals(stage.waits.slice(0, 3), [20, 40, 80]);
    assert(stage.asked.length <= 10, stage.asked.join());
  }, {
    streamingLists: false,
    early: (fake) => {
      for (let index = 0; index < 600; index++) fake.store.create(service(`web-${index}`));
      fake.failNext({ status: 410, reason: "Expired", query: "continue", times: LONG_MS });
    },
  }));

Deno.test("Reflector.run() lists again when the server's version has gone back and a watch broke", () =>
  followServices(async (stage, fake) => {
    await eventually("it watches", () => fake.openWatches === 1);
    fake.store.rollBackVersionTo(900);
    // As from a proxy whose server is restored from a backup.
    fake.forEachWatch((watch) => watch.sendRaw("<html>502 Bad Gateway</html>\n"));
    await eventually("it lists again", () => stage.reflector.status.relists === 1);
    fake.store.create(service("c"));
    await stage.has("a", "b", "c");
    assertEquals(stage.asked.filter((asked) => asked.startsWith("watch")), [
      "watch 1002",
      "watch 900",
    ]);
  }, { streamingLists: false }));

for (
  const [name, failure] of [
    ["429", { status: 429, reason: "TooManyRequests" }],
    ["500", { status: 500, reason: "InternalError" }],
    ["503", { status: 503, reason: "ServiceUnavailable" }],
    ["401", { status: 401, reason: "Unauthorized", times: 4 }],
    ["403", { status: 403, reason: "Forbidden" }],
  ] as const
) {
  Deno.test(`Reflector.run() keeps its version and comes back after ${name}`, () =>
    followServices(async (stage, fake) => {
      fake.failNext({ times: 2, watch: true, ...failure });
      fake.forEachWatch((watch) => watch.end());
      await stage.failed(name);
      fake.store.create(service("c"));
      await stage.has("a", "b", "c");
      assertEquals([...new Set(stage.asked.slice(1))], ["watch 1002"]);
      assertEquals([stage.handled, stage.reflector.status.relists], [["add c"], 0]);
      assertEquals(stage.reflector.status.lastError, undefined);
      assertEquals(stage.reflector.status.watchFailures, 2);
    }));
}

for (const [asked, waited] of [[1, 1000], [86_400, 60_000]] as const) {
  Deno.test(`Reflector.run() waits for ${waited} ms if a busy server asks for ${asked} s`, () =>
    followServices(async (stage, fake) => {
      fake.failNext({ status: 429, watch: true, retryAfterSeconds: asked });
      fake.forEachWatch((watch) => watch.end());
      await eventually("it waits", () => stage.waits.length > 0);
      assertEquals(stage.waits, [waited]);
    }));
}

Deno.test("Reflector.run() keeps no more objects than a cluster can have", () =>
  followServices(async (stage, fake) => {
    for (let index = 0; index < 249_998; index++) {
      stage.informer.upsert({ metadata: { name: `other-${index}` }, spec: {} });
    }
    fake.store.create(service("c"));
    await stage.failed("Cannot keep 'default/c': there are 250000 objects already");
    assertEquals(stage.informer.size, 250_000);
  }));

Deno.test("Reflector.run() asks for the server's version only after a watch broke off", () =>
  followServices(async (stage, fake) => {
    await eventually("watches have ended at their time", () => stage.asked.length === 3);
    const versionRequests = () => fake.requests.filter(({ query }) => query.limit === "1").length;
    assertEquals(versionRequests(), 0);
    fake.forEachWatch((watch) => watch.end());
    await eventually("it watches again", () => stage.asked.length > 3);
    assert(versionRequests() > 0);
  }, { timing: { minWatchSeconds: 1.2 } }));

Deno.test("Reflector.run() leaves a quiet watch alone that began as a streaming list", async () => {
  const clock = new FakeClock();
  await followServices(async (stage, fake) => {
    // The list would have been given up.
    await clock.advance(31_000);
    fake.store.create(service("c"));
    await stage.has("a", "b", "c");
    assertEquals(stage.asked, ["streaming list"]);
  }, { clock });
});

Deno.test("Reflector.run() gives up a watch that does not end at its time", () =>
  followServices(async (stage, fake) => {
    await stage.failed("when expected");
    fake.store.create(service("c"));
    await stage.has("a", "b", "c");
    assertEquals(stage.asked.slice(0, 2), ["streaming list", "watch 1002"]);
  }, {
    timing: { minWatchSeconds: 0.5, watchGraceMs: 50 },
    early: (fake) => fake.endsWatches = false,
  }));

Deno.test("Reflector.run() requests a refused optional resource by back-off while others fail too", async () => {
  let othersFail = true;
  await followServices(async (stage, fake) => {
    await eventually("it has tried five times", () => stage.asked.length >= 5);
    othersFail = false;
    await eventually("it waits for long", () => stage.waits.includes(LONG_MS));
    assertEquals(new Set(stage.waits), new Set([20, 40, 80, 100, LONG_MS]));
    fake.setMissing(PATH, undefined);
    stage.reflector.retryUnavailable();
    await stage.has("a", "b");
  }, {
    selection: { ...SERVICES, optionalOn: [403] },
    early: (fake) => fake.setMissing(PATH, 403),
    othersFail: () => othersFail,
    timing: { refusalPatienceMs: 0, unavailableRetryMs: LONG_MS },
  });
});

Deno.test("Reflector.run() never gives up a required kind, and reports it once", () =>
  followServices(async (stage, fake) => {
    await eventually("it has tried five times", () => stage.asked.length >= 5);
    assert(stage.reflector.status.phase !== "unavailable");
    fake.setMissing(PATH, undefined);
    await stage.has("a", "b");
    assertEquals(stage.logger.lines.filter(({ level }) => level === "warn").length, 1);
  }, { early: (fake) => fake.setMissing(PATH, 403) }));

Deno.test("Reflector.run() ends at once when it is aborted, also within a wait", async () => {
  await using fake = await FakeApiServer.start();
  fake.setMissing(PATH, 403);
  const stage = new ReflectorStage(fake, { timing: { backoff: { initialMs: 600_000 } } });
  await eventually("it waits", () => stage.reflector.status.phase === "backoff");
  await stage[Symbol.asyncDispose]();
});
