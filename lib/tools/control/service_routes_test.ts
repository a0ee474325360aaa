import { testInformers } from "../../../tests/support/builders/test_dump.ts";
import { assertEquals, assertRejects } from "@std/assert";
import { testProxyPlan, testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { testService } from "../../../tests/support/builders/builders.ts";
import { explainStage } from "../../../tests/packet_flow/explain_executor.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import { FlowWatches } from "../../proxy/flow_watches.ts";
import type { ComparisonScope } from "../../proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { BadQuestion } from "./control_server.ts";
import type { NodeDifference } from "../diff/node_difference.ts";
import { answerFlow, serviceRoutes } from "./service_routes.ts";
import type { Query } from "./routes.ts";

const WEB = testServicePlan({ name: "web", portName: "http" });
const API = testServicePlan({ name: "api", clusterIp: "10.96.0.2" });
const MISSING: DataPlaneDifference = {
  object: "rule",
  name: "services, rule 1",
  kind: "missing",
  key: WEB.key,
};
const QUARANTINED = [{ key: API.key, reason: "refused" }];

/** Asks for the difference of a proxy of IPv4 whose backend returns these. */
function comparison(
  compare: (plan: ProxyPlan, scope?: ComparisonScope) => Promise<readonly DataPlaneDifference[]>,
  { mode = "nftables", clock = new FakeClock(), ...more }: {
    readonly mode?: Backend["mode"];
    readonly clock?: FakeClock;
    readonly loop?: object;
    readonly services?: { readonly plan: ProxyPlan };
  } = {},
) {
  const plan = testProxyPlan([WEB, API]);
  const inspect = () => Promise.resolve({ services: [{ key: WEB.key, addresses: ["open"] }] });
  const status = () => ({ failures: 0 });
  const family = {
    family: "IPv4",
    backend: { mode, compare, inspect },
    services: { plan },
    loop: { quarantined: QUARANTINED, activity: {} },
    ...more,
  };
  Object.assign(family.loop, { status });
  const parts = {
    services: { families: [family] },
    configuration: { mode },
    startUp: { node: { name: "node-1" } },
    informers: testInformers({}),
    manager: { phase: "serving" },
  };
  const edges = { clock, network: { interfaceAddresses: () => [] } } as never;
  const route = serviceRoutes(edges, { ...parts, others: [] } as never, { repaired() {} });
  return (query: Query<"/difference"> = {}, signal?: AbortSignal) =>
    route["/difference"](query, signal);
}

Deno.test("GET /difference refuses what it does not know, and continues", async () => {
  const running = comparison(() => Promise.resolve([]));
  for (const query of [{ family: "ipv5" }, { family: "IPv6" }, { service: "ns/nothing" }]) {
    await assertRejects(() => running(query), BadQuestion, Object.values(query)[0]);
  }
  assertEquals((await running()).families.length, 1);
});

Deno.test("GET /difference skips a request whose client has disconnected", async () => {
  let calls = 0;
  const running = comparison(() => {
    calls++;
    return Promise.resolve([]);
  });
  const first = running();
  const gone = new AbortController();
  const second = running({}, gone.signal);
  gone.abort();
  await first;
  await assertRejects(() => second);
  await running();
  assertEquals(calls, 2);
});

/** Asks what happens to a packet to a Service whose kernel is compared by `compare`. */
function explaining(clock: FakeClock, compare: Backend["compare"], activity = {}) {
  const scenario = { name: "web", services: [testService("web")] };
  const { plan, backend } = explainStage("nftables", scenario, "IPv4");
  const explain = backend.explain.bind(backend);
  const loop = { quarantined: [], activity };
  const services = { plan, interfaceAddresses: [], endpoints: { otherPorts: () => [] } };
  const routes = serviceRoutes({ clock } as never, {
    services: {
      families: [{
        family: "IPv4",
        backend: { mode: "nftables", compare, explain },
        services,
        loop,
      }],
    },
    others: [],
    configuration: { mode: "nftables" },
    current: { proxy: defaultConfiguration() },
    startUp: { node: { name: "node-1" } },
    informers: testInformers({}),
  } as never, { repaired() {} });
  return async (signal?: AbortSignal) => {
    const query = { from: "10.180.0.99", to: "172.30.0.41:80" };
    const { packets } = await routes["/explain"](query, signal);
    return packets.map(({ kernel }) => kernel.kind === "asked" ? kernel.kind : kernel.why);
  };
}

Deno.test("GET /explain compares one at a time", async () => {
  let underWay = 0;
  const explain = explaining(new FakeClock(), async () => {
    assertEquals(++underWay, 1);
    await settle();
    underWay--;
    return [];
  });
  const answers = await Promise.all(Array.from({ length: 8 }, () => explain()));
  assertEquals(answers, Array(8).fill(["asked"]));
});

Deno.test("GET /explain starts no comparison while one is open that took too long, and none without a client", async () => {
  const clock = new FakeClock();
  const opened: PromiseWithResolvers<[]>[] = [];
  const explain = explaining(clock, () => {
    const comparison = Promise.withResolvers<[]>();
    opened.push(comparison);
    return comparison.promise;
  });
  const first = explain();
  while (opened.length === 0) await clock.advance(0);
  const second = explain();
  while (clock.pendingTimers < 2) await clock.advance(0);
  await clock.advance(5_000);
  const waits = "'kube-relay diff' waits for";
  assertEquals(await first, [`it took longer than 5 s to answer; ${waits} it`]);
  assertEquals(await second, [`syncs or other comparisons took the 5 s to ask; ${waits} them`]);
  const gone = new AbortController();
  const third = explain(gone.signal);
  while (clock.pendingTimers < 1) await clock.advance(0);
  gone.abort();
  assertEquals(opened.length, 1);
  opened[0]!.resolve([]);
  await third;
  const fourth = explain();
  while (opened.length === 1) await clock.advance(0);
  opened[1]!.resolve([]);
  assertEquals([await fourth, opened.length], [["asked"], 2]);
});

Deno.test("GET /explain waits for a sync that runs", async () => {
  const clock = new FakeClock();
  const activity: { runningSince?: number } = { runningSince: 0 };
  const seen: boolean[] = [];
  const answer = explaining(clock, () => {
    seen.push(activity.runningSince !== undefined);
    return Promise.resolve([]);
  }, activity)();
  while (clock.pendingTimers < 2) await clock.advance(0);
  delete activity.runningSince;
  await clock.advance(30);
  assertEquals([await answer, seen], [["asked"], [false]]);
});

Deno.test("GET /difference reports differences that remain after three looks", async () => {
  const loop = { quarantined: [], lastSync: {}, activity: {} };
  let looks = 0;
  const running = comparison(() => {
    looks++;
    loop.lastSync = {};
    return Promise.resolve([MISSING]);
  }, { loop });
  assertEquals((await running()).families[0]?.differences, [MISSING]);
  assertEquals(looks, 3);
});

Deno.test("POST /difference repairs the other families if one cannot be repaired, and gives the reason", async () => {
  const log: unknown[] = [];
  const loop = {
    ...{ quarantined: [] as object[], activity: {} },
    ...{ request() {}, status: () => ({ failures: 2, lastError: "no table" }) },
  };
  const family = (name: string, repair: () => Promise<object>) => {
    let isRepaired = false;
    const backend = {
      mode: "nftables",
      compare: () => Promise.resolve(isRepaired ? [] : [MISSING]),
      repair: async () => {
        const operations = await repair();
        isRepaired = true;
        // A Service without a difference goes into quarantine meanwhile.
        loop.quarantined = QUARANTINED;
        return operations;
      },
    };
    return { family: name, backend, services: { plan: testProxyPlan([WEB, API]) }, loop };
  };
  const families = [
    family("IPv4", () => Promise.reject(new Error("nft: Operation not permitted"))),
    family("IPv6", () => Promise.resolve({ lines: 1 })),
  ];
  const clock = new FakeClock();
  const routes = serviceRoutes({ clock } as never, {
    services: { families },
    others: [],
    configuration: { mode: "nftables" },
    startUp: { node: { name: "node-1" } },
    manager: { phase: "serving" },
  } as never, { repaired: (_, { error }) => log.push(error) });
  const { families: [four, six] } = await routes["POST /difference"]({}) as NodeDifference;
  const error = "nft: Operation not permitted; " +
    "the running kube-relay has no right to write it: it needs CAP_NET_ADMIN";
  assertEquals([four?.repair?.error, four?.differences], [error, [MISSING]]);
  assertEquals([six?.repair?.error, six?.differences], [undefined, []]);
  assertEquals(six?.repair?.refused, [], "it did not differ");
  assertEquals([four?.failures, six?.lastError], [2, "no table"]);
  assertEquals(log, [error, undefined]);
});

const QUERY = {
  ...{ id: "trace-7", protocol: "UDP", to: "10.96.0.1", port: "53" },
  ...{ from: "10.0.0.1", sourcePort: "4000" },
};

type Families = Parameters<typeof answerFlow>[1];

function families(watches?: FlowWatches): Families {
  const backend = {
    ...(watches && { connections: { watches, refresh: () => Promise.resolve() } }),
  } as Families[0]["backend"];
  return [{ family: "IPv4", backend }];
}

Deno.test("answerFlow() begins a watch", async () => {
  const watches = new FlowWatches();
  assertEquals(await answerFlow(new FakeClock(), families(watches), QUERY), []);
  assertEquals(watches.isIdle, false);
});

Deno.test("answerFlow() refuses an invalid request, and a mode that sees no connections", async () => {
  for (
    const wrong of [
      { id: undefined },
      { id: "a b" },
      { protocol: "ICMP" },
      { to: "x" },
      { port: "0" },
      { sourcePort: "-1" },
      { to: "fd00::1" },
    ]
  ) {
    const query = { ...QUERY, ...wrong };
    const ask = () => answerFlow(new FakeClock(), families(new FlowWatches()), query);
    await assertRejects(ask, BadQuestion, "Cannot watch", JSON.stringify(wrong));
  }
  await assertRejects(
    () => answerFlow(new FakeClock(), families(), QUERY),
    BadQuestion,
    "sees no connections",
  );
});
