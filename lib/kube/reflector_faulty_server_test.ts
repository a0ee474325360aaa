/**
 * A server that answers and makes no progress: the reflector may neither ask in a busy loop nor wait
 * for it without end.
 */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import type { FakeWatch } from "../../tests/support/fakes/fake_api_watch.ts";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { followServices, service, SERVICES } from "../../tests/support/stages/reflector_stage.ts";
import { SERVICE, type Service } from "../api/kinds/service.ts";
import { KubeClient } from "./client.ts";
import type { HttpRequest, HttpTransport } from "./transport.ts";
import { Informer } from "./informer.ts";
import { PageTooLargeError } from "./list_page.ts";
import { Reflector, type ReflectorOptions } from "./reflector.ts";

const FUTURE = { type: "BOOKMARK", object: { metadata: { resourceVersion: "999999" } } };

/** What a server does to each watch at once, by its name. */
const HASTY: Readonly<Record<string, (watch: FakeWatch) => void>> = {
  "ends each watch after a bookmark": (watch) => watch.sendBookmark(),
  "ends each watch after a version that it does not know": (watch) =>
    watch.sendRaw(JSON.stringify(FUTURE) + "\n"),
  "ends each watch at once": () => {},
};

for (const [what, send] of Object.entries(HASTY)) {
  Deno.test(`Reflector.run() waits between requests if the server ${what}`, () =>
    followServices(async (stage, fake) => {
      const ending = setInterval(() =>
        fake.forEachWatch((watch) => {
          send(watch);
          watch.end();
        }), 5);
      try {
        await stage.failed("at once");
        await eventually("it waits", () => stage.reflector.status.phase === "backoff");
        assert(stage.asked.length < 20, stage.asked.join());
      } finally {
        clearInterval(ending);
      }
      fake.store.create(service("c"));
      await stage.has("a", "b", "c");
      assertEquals(stage.handled, ["add c"]);
      // It keeps its version.
      const asked = new Set(["streaming list", "watch 1002"]);
      if (what === "ends each watch at once") assertEquals(new Set(stage.asked), asked);
    }));
}

Deno.test("Reflector.run() lists in pages if a streaming list sends events and never ends", () =>
  followServices(async (stage, fake) => {
    const changing = setInterval(() => fake.store.update(service("a", "10.0.0.9")), 10);
    try {
      await eventually("the list is complete", () => stage.informer.synced);
    } finally {
      clearInterval(changing);
    }
    assertEquals(stage.asked.slice(0, 2), ["streaming list", "list"]);
  }, {
    early: (fake) => fake.streamingLists = "never ending",
    timing: { stallMs: 200 },
  }));

Deno.test("Reflector.run() lists in pages if a streaming list is ended before its end", () =>
  followServices(async (stage, fake) => {
    await eventually("the list begins", () => fake.openWatches === 1);
    fake.forEachWatch((watch) => watch.end());
    await eventually("the list is complete", () => stage.informer.synced);
    assertEquals(stage.asked.slice(0, 2), ["streaming list", "list"]);
  }, { early: (fake) => fake.streamingLists = "never ending" }));

/** A reflector of Services, and what answers it. Nothing takes time but waits of the clock. */
function reflectorOf(
  clock: FakeClock,
  answer: (query: URLSearchParams) => { readonly status: number; readonly object: unknown },
  options: Partial<ReflectorOptions<Service>> & { readonly optionalOn?: readonly number[] },
) {
  const transport: Pick<HttpTransport, "request"> = {
    request({ path, signal }: HttpRequest) {
      const { status, object } = answer(new URL(path, "http://fake").searchParams);
      if (signal.aborted) return Promise.reject(signal.reason);
      const body = (async function* () {
        yield new TextEncoder().encode(JSON.stringify(object));
        return undefined;
      })();
      const contentType = "application/json";
      return Promise.resolve({ status, contentType, retryAfter: undefined, body });
    },
  };
  const auth = new StaticAuth("http://127.0.0.1");
  const client = new KubeClient({ clock, auth, transport: transport as HttpTransport });
  const { optionalOn = [] } = options;
  return new Reflector<Service>({ clock, client, logger: new MemoryLogger(), random: () => 0 }, {
    subscription: {
      spec: SERVICE,
      options: { ...SERVICES, optionalOn },
      informer: new Informer<Service>(),
    },
    slim: (raw) => raw as Service,
    ...options,
  });
}

Deno.test("Reflector.run() watches from the version of the first page if later pages have later ones", async () => {
  const versions = ["5", "7"];
  const abort = new AbortController();
  let watched: string | null = null;
  const reflector = reflectorOf(new FakeClock(), (query) => {
    if (query.has("watch")) {
      watched = query.get("resourceVersion");
      abort.abort("the test is over");
    }
    const metadata = { resourceVersion: versions.shift(), continue: versions.length && "more" };
    return { status: 200, object: { metadata: { ...metadata }, items: [] } };
  }, { streamingLists: false });
  await reflector.run(abort.signal);
  assertEquals(watched, "5");
});

Deno.test("Reflector.run() requests a refused optional resource for three minutes by back-off, then rarely, until it is told", async () => {
  const abort = new AbortController();
  const clock = new FakeClock();
  const askedAt: number[] = [];
  const reflector = reflectorOf(clock, () => {
    askedAt.push(clock.now() / 1000);
    return { status: 403, object: { kind: "Status", status: "Failure", code: 403 } };
  }, { optionalOn: [403] });
  const running = reflector.run(abort.signal);
  await clock.advance(1_000_000);
  const atFirst = [0, 0.8, 2.4, 5.6, 12, 24.8, 50.4, 80.4, 110.4, 140.4, 170.4, 200.4];
  assertEquals(askedAt, [...atFirst, 501.2, 802]);
  reflector.retryUnavailable();
  await clock.advance(200_000);
  assertEquals(askedAt.slice(atFirst.length + 2), atFirst.slice(1, -1).map((at) => 1000 + at));
  abort.abort("the test is over");
  await running;
});

Deno.test("Reflector.run() asks for smaller pages where one is too large", async () => {
  const clock = new FakeClock();
  const abort = new AbortController();
  const limits: unknown[] = [];
  const informer = new Informer<Service>();
  const client = {
    listPage({ limit }: { readonly limit: number }) {
      limits.push(limit);
      if (limit > 5) return Promise.reject(new PageTooLargeError("too large"));
      const next = limits.length < 4 ? "next" : undefined;
      return Promise.resolve({ resourceVersion: "7", continue: next });
    },
    watch: () => Promise.reject(new Error("not now")),
  } as unknown as KubeClient;
  const dependencies = { clock, logger: new MemoryLogger(), client, random: () => 0 };
  const reflector = new Reflector<Service>(dependencies, {
    subscription: { spec: SERVICE, options: {}, informer },
    slim: (raw) => raw as Service,
    streamingLists: false,
  });
  const running = reflector.run(abort.signal);
  await eventually("everything is listed", () => informer.synced);
  abort.abort();
  await running;
  assertEquals(limits, [500, 50, 5, 5]);
});
