import { assertEquals } from "@std/assert";
import { serviceLoop } from "../../tests/support/builders/builders.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { createHealthzHandler } from "./healthz_server.ts";
import { ProxyHealth } from "./proxy_health.ts";

const START = Date.UTC(2026, 0, 1);

function createServer(): {
  health: ProxyHealth;
  answers: string[];
  ask: (path: string, now: number) => Response;
  enter: (phase: string) => void;
} {
  const clock = new FakeClock(START);
  const health = new ProxyHealth({ clock }, { timeoutMs: 10_000 });
  const answers: string[] = [];
  let phase: string | undefined;
  const handler = createHealthzHandler({
    health,
    now: () => clock.wallNow(),
    phase: () => phase,
    onAnswer: (path, code) => answers.push(`${path} ${code}`),
  });
  return {
    health,
    answers,
    enter: (entered) => void (phase = entered),
    ask(path, now) {
      clock.stall(now - clock.now());
      return handler(new Request(`http://localhost${path}`));
    },
  };
}

Deno.test("createHealthzHandler() answers 503 on /healthz and 200 on /livez before the Node is known", async () => {
  const { ask, answers } = createServer();
  const healthz = ask("/healthz", 0);
  assertEquals(healthz.status, 503);
  assertEquals(
    await healthz.text(),
    '{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-01T00:00:00.000Z",' +
      '"nodeEligible":false,"healthy":true}',
  );
  const livez = ask("/livez", 0);
  assertEquals(livez.status, 200);
  assertEquals(
    await livez.text(),
    '{"lastUpdated":"2026-01-01T00:00:00.000Z","currentTime":"2026-01-01T00:00:00.000Z",' +
      '"healthy":true}',
  );
  assertEquals(livez.headers.get("content-type"), "application/json");
  assertEquals(livez.headers.get("x-content-type-options"), "nosniff");
  assertEquals(answers, ["healthz 503", "livez 200"]);
});

Deno.test("createHealthzHandler() names the family that is late", async () => {
  const { ask, health } = createServer();
  health.nodeSeen({});
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  health.on({ kind: "synced", loop: serviceLoop("IPv6") });
  health.on({ kind: "queued", loop: serviceLoop("IPv6") });
  const late = ask("/healthz", 25_000);
  assertEquals(late.status, 503);
  assertEquals(await late.json(), {
    lastUpdated: "2026-01-01T00:00:00.000Z",
    currentTime: "2026-01-01T00:00:25.000Z",
    nodeEligible: true,
    healthy: false,
    status: {
      IPv4: { lastUpdated: "2026-01-01T00:00:00.000Z", healthy: true },
      IPv6: { lastUpdated: "2026-01-01T00:00:00.000Z", healthy: false },
    },
  });
  assertEquals(ask("/livez", 25_000).status, 503);
});

Deno.test("createHealthzHandler() keeps /livez good on a node that is being drained", async () => {
  const { ask, health } = createServer();
  health.nodeSeen({ taints: [{ key: "ToBeDeletedByClusterAutoscaler" }] });
  const healthz = ask("/healthz", 0);
  assertEquals(healthz.status, 503);
  const body = await healthz.json();
  assertEquals([body.healthy, body.nodeEligible], [true, false]);
  assertEquals(ask("/livez", 0).status, 200);
});

Deno.test("createHealthzHandler() knows two paths", () => {
  const { ask } = createServer();
  assertEquals(ask("/", 0).status, 404);
  assertEquals(ask("/metrics", 0).status, 404);
});

Deno.test("createHealthzHandler() names the phase while the process does not serve yet", async () => {
  const { ask, enter } = createServer();
  enter("waiting for objects");
  const body = await ask("/livez", 0).json();
  assertEquals(body.phase, "waiting for objects");
});
