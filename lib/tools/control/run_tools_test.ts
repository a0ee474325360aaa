import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { explainStage } from "../../../tests/packet_flow/explain_executor.ts";
import { testService } from "../../../tests/support/builders/builders.ts";
import { testProxyPlan, testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { testInformers } from "../../../tests/support/builders/test_dump.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { OpenFiles } from "../../os/open_files.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import { FlowWatches } from "../../proxy/flow_watches.ts";
import { BadQuestion } from "./control_server.ts";
import { ToolsOfRun } from "./run_tools.ts";

const FLAGS = { config: "c.yaml", kubeconfig: "/etc/k", manifests: ["m", "/n"], mode: "auto" };

/** The tools of a run with these families of Services, in nftables mode. */
function toolsOf(families: readonly object[], clock = new FakeClock()) {
  const edges = { ...testDependencies({ clock }), logger: new MemoryLogger() };
  const tools = new ToolsOfRun({ ...edges, openFiles: new OpenFiles() });
  const routes = tools.routes({
    services: { families },
    others: [],
    configuration: { mode: "nftables", flags: FLAGS },
    current: { proxy: defaultConfiguration() },
    startUp: { node: { name: "node-1" } },
    informers: testInformers({}),
    manager: { phase: "serving" },
  } as never);
  return { tools, routes };
}

Deno.test("/flags has paths as another folder needs them", async () => {
  const cwd = Deno.cwd();
  assertEquals(await toolsOf([]).routes["/flags"]({}), {
    ...FLAGS,
    config: `${cwd}/c.yaml`,
    manifests: [`${cwd}/m`, "/n"],
  });
});

Deno.test("/services has at most 1,000 names, in their order", async () => {
  const plans = Array.from({ length: 1_200 }, (_, index) => testServicePlan({ name: `s${index}` }));
  const { routes } = toolsOf([{ services: { plan: testProxyPlan(plans) } }]);
  const names = await routes["/services"]({});
  assertEquals(names.length, 1_000);
  assertEquals(names, names.toSorted());
  assertEquals((await routes["/services"]({ prefix: "ns/s119" })).length, 11);
});

const WEB = testServicePlan({ name: "web", portName: "http" });
const API = testServicePlan({ name: "api", clusterIp: "10.96.0.2" });
const MISSING: DataPlaneDifference = { object: "rule", name: "1", kind: "missing", key: WEB.key };

/** A family whose backend finds these differences; `more` overrides its loop. */
function family(compare: Backend["compare"], more: object = {}) {
  return {
    family: "IPv4",
    backend: { mode: "nftables", compare },
    services: { plan: testProxyPlan([WEB, API]) },
    loop: { quarantined: [], activity: {}, status: () => ({ failures: 0 }), ...more },
  };
}

Deno.test("/difference refuses what it does not know, skips a client that has gone, and continues", async () => {
  let looks = 0;
  const { routes } = toolsOf([family(() => (looks++, Promise.resolve([])))]);
  const ask = routes["/difference"];
  for (const query of [{ family: "ipv5" }, { family: "IPv6" }, { service: "ns/nothing" }]) {
    await assertRejects(() => ask(query), BadQuestion, Object.values(query)[0]);
  }
  const first = ask({});
  const gone = new AbortController();
  const second = ask({}, gone.signal);
  gone.abort();
  assertEquals((await first).families.length, 1);
  await assertRejects(() => second);
  await ask({});
  assertEquals(looks, 2);
});

Deno.test("/difference reports differences that remain after three looks", async () => {
  let looks = 0;
  const compared = family(() => {
    looks++;
    Object.assign(compared.loop, { lastSync: {} });
    return Promise.resolve([MISSING]);
  });
  const { families } = await toolsOf([compared]).routes["/difference"]({});
  assertEquals([families[0]?.differences, looks], [[MISSING], 3]);
});

Deno.test("POST /difference repairs the other families if one cannot be repaired, and gives the reason", async () => {
  const loop = {
    quarantined: [] as object[],
    request() {},
    status: () => ({ failures: 2, lastError: "no table" }),
  };
  const repairable = (name: string, repair: () => Promise<object>) => {
    let isRepaired = false;
    const made = family(() => Promise.resolve(isRepaired ? [] : [MISSING]), loop);
    const own = async () => {
      const operations = await repair();
      isRepaired = true;
      // A Service without a difference goes into quarantine meanwhile.
      made.loop.quarantined = [{ key: API.key, reason: "refused" }] as never;
      return operations;
    };
    return {
      ...made,
      ...{ family: name, services: { plan: { ...made.services.plan, family: name } } },
      backend: { ...made.backend, repair: own },
    };
  };
  const { tools, routes } = toolsOf([
    repairable("IPv4", () => Promise.reject(new Error("nft: Operation not permitted"))),
    repairable("IPv6", () => Promise.resolve({ lines: 1 })),
  ]);
  const { families: [four, six] } = await routes["POST /difference"]({});
  const error = "nft: Operation not permitted; " +
    "the running kube-relay has no right to write it: it needs CAP_NET_ADMIN";
  assertEquals([four?.repair?.error, four?.differences], [error, [MISSING]]);
  assertEquals([six?.repair?.error, six?.differences], [undefined, []]);
  assertEquals(six?.repair?.refused, [], "it did not differ");
  assertEquals([four?.failures, six?.lastError], [2, "no table"]);
  const texts = tools.changes.recent().entries.flatMap(({ lines }) =>
    lines.map(({ text }) => text)
  );
  assertStringIncludes(texts.join("\n"), `FAILED: ${error}`);
});

/** Asks what happens to a packet to a Service with affinity. */
function explaining(
  clock: FakeClock,
  compare: Backend["compare"],
  { activity = {}, findAffinity = () => Promise.resolve(undefined) }: {
    readonly activity?: object;
    readonly findAffinity?: () => Promise<undefined>;
  } = {},
) {
  const services = [testService("web", { sessionAffinity: "ClientIP" })];
  const { plan, backend } = explainStage("nftables", { name: "web", services }, "IPv4");
  const explain = backend.explain.bind(backend);
  const { routes } = toolsOf([{
    family: "IPv4",
    backend: { mode: "nftables", compare, explain, findAffinity },
    services: { plan, interfaceAddresses: [], endpoints: { otherPorts: () => [] } },
    loop: { quarantined: [], activity },
  }], clock);
  return async (signal?: AbortSignal) => {
    const query = { from: "10.180.0.99", to: "172.30.0.41:80" };
    const { packets } = await routes["/explain"](query, signal);
    return packets.map(({ kernel }) => kernel.kind === "asked" ? kernel.kind : kernel.why);
  };
}

Deno.test("/explain asks the machine for one packet after the other", async () => {
  let underWay = 0;
  const look = async () => {
    assertEquals(++underWay, 1);
    await settle();
    underWay--;
  };
  const explain = explaining(
    new FakeClock(),
    async () => (await look(), []),
    { findAffinity: look as () => Promise<undefined> },
  );
  const answers = await Promise.all(Array.from({ length: 8 }, () => explain()));
  assertEquals(answers, Array(8).fill(["asked"]));
});

Deno.test("/explain starts no comparison while one is open that took too long, and none without a client", async () => {
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

Deno.test("/explain waits for a sync that runs", async () => {
  const clock = new FakeClock();
  const activity: { runningSince?: number } = { runningSince: 0 };
  const seen: boolean[] = [];
  const answer = explaining(clock, () => {
    seen.push(activity.runningSince !== undefined);
    return Promise.resolve([]);
  }, { activity })();
  while (clock.pendingTimers < 2) await clock.advance(0);
  delete activity.runningSince;
  await clock.advance(30);
  assertEquals([await answer, seen], [["asked"], [false]]);
});

const FLOW = {
  ...{ id: "trace-7", protocol: "UDP", to: "10.96.0.1", port: "53" },
  ...{ from: "10.0.0.1", sourcePort: "4000" },
};

Deno.test("/flow begins a watch, and refuses an invalid request and a mode that sees no connections", async () => {
  const watches = new FlowWatches();
  const connections = { watches, refresh: () => Promise.resolve() };
  const flow = toolsOf([{ family: "IPv4", backend: { connections } }]).routes["/flow"];
  for (
    const wrong of [
      { id: undefined },
      { id: "a b" },
      { protocol: "ICMP" },
      { to: "x" },
      { port: "0" },
      { sourcePort: "-1" },
      { from: "x" },
      { to: "fd00::1" },
    ]
  ) {
    const ask = () => flow({ ...FLOW, ...wrong });
    await assertRejects(ask, BadQuestion, "Cannot watch", JSON.stringify(wrong));
  }
  assertEquals(watches.isIdle, true);
  assertEquals(await flow(FLOW), []);
  assertEquals(watches.isIdle, false);
  const { routes } = toolsOf([{ family: "IPv4", backend: {} }]);
  await assertRejects(() => routes["/flow"](FLOW), BadQuestion, "sees no connections");
});
