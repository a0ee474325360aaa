import { assert, assertEquals } from "@std/assert";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import {
  IPV4_PLAN,
  setClusterPolicy,
  setPod,
  setPolicy,
} from "../../../tests/support/builders/policy_objects.ts";
import {
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../../tests/support/builders/service_plans.ts";
import { randomFrom } from "../../../tests/support/builders/seeded_random.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { endpointListsOf, NO_PART } from "../endpoint_loops.ts";
import { Forwarding } from "../forwarding.ts";
import { serviceAddresses } from "../listeners.ts";
import { HealthMonitor } from "./health_monitor.ts";

const CHECKED: EdgeSettings = {
  ...{ healthCheck: "tcp", healthIntervalMs: 1000, healthRise: 1, healthFall: 1 },
};

class Stage {
  readonly clock = new FakeClock();
  readonly network = new FakeNetwork();
  readonly logger = new MemoryLogger();
  /** The last delivery to each ServicePort, and the number of deliveries. */
  readonly skipped = new Map<ServicePortKey, readonly string[]>();
  deliveries = 0;
  readonly changes: string[] = [];
  readonly forwarding: Forwarding;
  readonly monitor: HealthMonitor;

  constructor(judge?: ConnectionJudge, openFiles = new OpenFiles()) {
    const { clock, network, logger } = this;
    const options = { udpTimeoutMs: 1000, ...(judge && { judge }) };
    const random = randomFrom(1);
    this.forwarding = new Forwarding({ clock, network, logger, openFiles, random }, options);
    this.monitor = new HealthMonitor(this.forwarding, (key, unhealthy) => {
      this.deliveries++;
      this.skipped.set(key, [...unhealthy].sort());
      structuredClone(unhealthy);
    }, (changes) => {
      for (const { endpoint, state } of structuredClone(changes)) {
        this.changes.push(`${endpoint} ${state}`);
      }
    });
  }

  /** The checks that start within some time, as endpoint and time. */
  async startsWithin(ms: number): Promise<readonly (readonly [endpoint: string, at: number])[]> {
    const starts: (readonly [string, number])[] = [];
    const connect = this.network.connectTcp;
    this.network.connectTcp = (at, signal) => {
      starts.push([`${at.hostname}:${at.port}`, this.clock.now()]);
      return connect.call(this.network, at, signal);
    };
    await this.clock.advance(ms);
    this.network.connectTcp = connect;
    return starts;
  }

  states({ key }: Pick<ServicePlan, "key">): readonly string[] | undefined {
    return this.monitor.inspect(key)?.endpoints.map(({ endpoint, state, reason }) =>
      `${endpoint} ${state}${reason === undefined ? "" : `: ${reason}`}`
    );
  }
}

/** Endpoints of a network `10.N`. */
function many(count: number, network = 0): readonly string[] {
  return Array.from({ length: count }, (_, n) => `10.${network}.${n >> 8}.${n & 255}:80`);
}

function planOf(to: readonly string[], more: TestServicePlan = {}): ServicePlan {
  return testServicePlan({ to, edge: CHECKED, ...more });
}

Deno.test("HealthMonitor checks an endpoint once for all ServicePorts with the same check", async () => {
  const stage = new Stage();
  const to = ["10.0.0.1:80"];
  stage.network.answers.set(to[0]!, "refuse");
  const plans = [planOf(to, { name: "a" }), planOf(to, { name: "b" })];
  const other = planOf(to, { name: "c", edge: { ...CHECKED, healthIntervalMs: 1001 } });
  for (const plan of plans) stage.monitor.follow(plan);
  await stage.clock.advance(100_000);
  const count = stage.network.dials.length;
  assert(count >= 89 && count <= 112, `${count} checks in 100 s`);
  for (const { key } of plans) assertEquals(stage.skipped.get(key), to);
  stage.monitor.follow(other);
  stage.monitor.forget(plans[0]!.key);
  await stage.clock.advance(100_000);
  const more = stage.network.dials.length - count;
  assert(more >= 2 * 89 && more <= 2 * 112, `${more} checks in 100 s`);
  stage.monitor.close();
});

Deno.test("HealthMonitor.follow() does work for changed endpoints alone", async () => {
  const stage = new Stage();
  const to = many(1000);
  const plan = planOf(to);
  stage.monitor.follow(plan);
  await stage.clock.advance(2000);
  const [list = []] = endpointListsOf(plan);
  let texts = 0;
  const stringify = JSON.stringify;
  JSON.stringify = (value: unknown) => (texts++, stringify(value));
  try {
    const rest = { kind: "forward", endpoints: list.slice(1) } as const;
    const added = planOf(["10.1.0.1:80"]).internal;
    assert(added.kind === "forward");
    const endpoints = [...rest.endpoints, ...added.endpoints];
    const internal = { kind: "forward", endpoints } as const;
    stage.monitor.follow({ ...plan, internal, external: internal, externalFromCluster: internal });
    stage.monitor.follow(testServicePlan({ name: "unchecked", to }));
  } finally {
    JSON.stringify = stringify;
  }
  assertEquals(texts, 1, "the added endpoint alone gets a new check");
  assertEquals(stage.monitor.figures.healthy, 1000);
  const dialsOf = async (ms: number) => {
    const before = stage.network.dials.length;
    await stage.clock.advance(ms);
    return stage.network.dials.slice(before);
  };
  assert(!(await dialsOf(1200)).includes(to[0]!), "the removed one is not checked");
  stage.monitor.forget(plan.key);
  assertEquals(await dialsOf(10_000), []);
  stage.monitor.close();
});

Deno.test("HealthMonitor delivers many verdicts together", async () => {
  const stage = new Stage();
  const to = many(1000);
  for (const endpoint of to) stage.network.answers.set(endpoint, "refuse");
  const plan = planOf(to);
  stage.monitor.follow(plan);
  await stage.clock.advance(3000);
  assertEquals(stage.monitor.figures.unhealthy, 1000);
  assertEquals([stage.skipped.get(plan.key)?.length, stage.changes.length], [1000, 1000]);
  assert(stage.deliveries <= 150, `${stage.deliveries} deliveries`);
  assertEquals(
    stage.monitor.inspect(plan.key)?.ignored,
    "health is ignored: 0 of 1000 endpoints are healthy",
  );
  stage.monitor.close();
});

Deno.test("HealthMonitor does not connect to link-local addresses or to itself", async () => {
  const stage = new Stage();
  const own = testServicePlan({ name: "own", clusterIp: "10.0.0.2", port: 9000 });
  const frontends = serviceAddresses(own, testSharedPlan());
  stage.forwarding.endpointLoops.replace(own, { from: NO_PART, to: { ...NO_PART, frontends } });
  const plan = planOf(["10.0.0.1:80", "10.0.0.2:80", "169.254.169.254:80"], {
    edge: { ...CHECKED, healthPort: 9000 },
  });
  stage.monitor.follow(plan);
  await stage.clock.advance(3000);
  assertEquals(new Set(stage.network.dials), new Set(["10.0.0.1:9000"]));
  const [first, second, third] = stage.states(plan) ?? [];
  assertEquals(first, "10.0.0.1:80 healthy");
  assert(second?.startsWith("10.0.0.2:80 unchecked: not checked: it is an address of ns/own/TCP"));
  assert(third?.startsWith("169.254.169.254:80 unchecked: not checked: its address has to be"));
  assertEquals(stage.skipped.size, 0, "they are used");
  stage.forwarding.endpointLoops.replace(own, { from: { ...NO_PART, frontends }, to: NO_PART });
  await stage.clock.advance(2000);
  assertEquals(stage.states(plan)?.[1], "10.0.0.2:80 healthy");
  stage.monitor.close();
});

Deno.test("HealthMonitor checks no isolated pod of another namespace", async () => {
  const state = new PolicyState();
  const judge = new ConnectionJudge();
  for (
    const [pod, address, app] of [
      ["ns/own", "10.1.0.1", "isolated"],
      ["other/isolated", "10.1.0.2", "isolated"],
      ["other/open", "10.1.0.3", "open"],
      ["other/accepting", "10.1.0.4", "accepting"],
    ] as const
  ) setPod(state, pod, { address, labels: { app } });
  const podSelector = { matchLabels: { app: "accepting" } };
  setClusterPolicy(state, "accept", {
    subject: { pods: { namespaceSelector: {}, podSelector } },
    ingress: [{ action: "Accept", from: [{ namespaces: {} }] }],
  });
  for (const namespace of ["ns", "other"]) {
    setPolicy(state, `${namespace}/deny`, {
      podSelector: { matchLabels: { app: "isolated" } },
      policyTypes: ["Ingress"],
    });
  }
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, includesRemotePods: true });
  planner.setOptions({ deny: { action: "reject" }, closedRanges: [] });
  const changes = planner.update();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  const stage = new Stage(judge);
  const plan = planOf(["10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80", "192.0.2.1:80"]);
  stage.monitor.follow(plan);
  await stage.clock.advance(3000);
  assertEquals(
    [...new Set(stage.network.dials)].sort(),
    ["10.1.0.1:80", "10.1.0.3:80", "10.1.0.4:80", "192.0.2.1:80"],
  );
  assertEquals(
    stage.states(plan)?.[1],
    "10.1.0.2:80 unchecked: not checked: NetworkPolicies isolate pod other/isolated, which is in " +
      "another namespace",
  );
  stage.monitor.close();
});

Deno.test("HealthMonitor ejects by outcomes with a growing time, and ignores unknown endpoints", async () => {
  const stage = new Stage();
  const plan = planOf(["10.0.0.1:80", "10.0.0.2:80"], {
    edge: { ejectAfter: 2, ejectionMs: 1000 },
  });
  stage.monitor.follow(plan);
  const { key: servicePort } = plan;
  const [{ key: endpoint } = {}] = endpointListsOf(plan)[0] ?? [];
  const fail = () => {
    for (let count = 0; count < 2; count++) {
      stage.monitor.observe({ servicePort, endpoint: endpoint!, failure: "timeout" });
    }
  };
  fail();
  await stage.clock.advance(900);
  assertEquals(stage.skipped.get(servicePort), ["10.0.0.1:80"]);
  assertEquals(
    stage.states(plan)?.[0],
    "10.0.0.1:80 ejected: 2 connections in succession failed, " +
      "the last one: no connection in time",
  );
  await stage.clock.advance(200);
  assertEquals(stage.skipped.get(servicePort), []);
  fail();
  await stage.clock.advance(1900);
  assertEquals(stage.skipped.get(servicePort), ["10.0.0.1:80"], "the second one takes 2 s");
  await stage.clock.advance(200);
  assertEquals(stage.skipped.get(servicePort), []);
  const figures = stage.monitor.figures;
  stage.monitor.observe({ servicePort, endpoint: "10.9.9.9:80" as never, failure: "timeout" });
  stage.monitor.observe({
    servicePort: "ns/x/TCP" as never,
    endpoint: endpoint!,
    failure: "timeout",
  });
  assertEquals(stage.monitor.figures, figures);
  stage.monitor.forget(servicePort);
  assertEquals([stage.monitor.figures.healthy, stage.states(plan)], [0, undefined]);
  stage.monitor.close();
  assertEquals(stage.clock.pendingTimers, 0);
});

Deno.test("HealthMonitor keeps a verdict when only the settings of the check change", async () => {
  const stage = new Stage();
  stage.network.answers.set("10.0.0.1:80", "refuse");
  const plan = planOf(["10.0.0.1:80", "10.0.0.2:80"]);
  stage.monitor.follow(plan);
  await stage.clock.advance(2000);
  assertEquals(stage.skipped.get(plan.key), ["10.0.0.1:80"]);
  const edge = { ...CHECKED, healthIntervalMs: 50_000 };
  stage.monitor.follow({ ...plan, edge });
  await stage.clock.advance(100);
  assertEquals(stage.skipped.get(plan.key), ["10.0.0.1:80"]);
  stage.monitor.follow({ ...plan, edge: { ejectAfter: 1 } });
  await stage.clock.advance(100);
  assertEquals(stage.skipped.get(plan.key), []);
  stage.monitor.close();
});

Deno.test("HealthMonitor follows rise and fall; the first result decides at once", async () => {
  const stage = new Stage();
  const [to] = many(1);
  const plan = planOf([to!], { edge: { ...CHECKED, healthRise: 2, healthFall: 3 } });
  stage.monitor.follow(plan);
  const verdictAfter = async (answer: "accept" | "refuse" | "out-of-sockets") => {
    stage.network.answers.set(to!, answer);
    const before = stage.network.dials.length;
    while (stage.network.dials.length === before) await stage.clock.advance(10);
    return stage.monitor.inspect(plan.key)?.endpoints[0]?.state;
  };
  const answers = { "+": "accept", "-": "refuse", "?": "out-of-sockets" } as const;
  let found = "";
  for (const each of "??-?+?++--+-?-+---") {
    const state = await verdictAfter(answers[each as "+"]);
    found += { unchecked: "?", healthy: "H", unhealthy: "U", ejected: "E" }[state!];
  }
  assertEquals(found, "??UUUUHHHHHHHHHHHU");
  stage.monitor.close();
  assertEquals(stage.clock.pendingTimers, 0);
});

Deno.test("HealthMonitor spreads first checks over the interval, and repeats them with jitter", async () => {
  const stage = new Stage();
  stage.monitor.follow(planOf(many(300), { edge: { ...CHECKED, healthIntervalMs: 10_000 } }));
  const starts = await stage.startsWithin(50_000);
  const first = new Map(starts.toReversed());
  assertEquals(first.size, 300);
  const tenths = Map.groupBy(first.values(), (at) => Math.floor(at / 1000));
  const sizes = [...tenths.values()].map(({ length }) => length);
  assert(sizes.every((size) => size >= 25 && size <= 35) && sizes.length >= 10, `${sizes}`);
  const times = Map.groupBy(starts, ([endpoint]) => endpoint);
  const gaps = [...times.values()].flatMap((all) =>
    all.slice(1).map(([, at], index) => at - all[index]![1])
  );
  assert(gaps.every((gap) => gap >= 8999 && gap <= 11_100), `${gaps}`);
  assert(new Set(gaps.map(Math.round)).size > 100, "the gaps vary");
  stage.monitor.close();
});

Deno.test("HealthMonitor starts at most 500 checks a second, however many are due", async () => {
  const stage = new Stage();
  stage.monitor.follow(planOf(many(2000)));
  stage.clock.stall(60_000);
  const { length } = await stage.startsWithin(1000);
  assert(length >= 450 && length <= 510, `${length}`);
  stage.monitor.close();
});

Deno.test("HealthMonitor has at most 128 checks in progress, and ends them with the ServicePort", async () => {
  const stage = new Stage();
  const plans = Array.from({ length: 50 }, (_, n) => planOf(many(8, n), { name: `s${n}` }));
  const spread = plans.map((plan, n) => ({ ...plan, name: { ...plan.name, namespace: `n${n}` } }));
  for (const endpoint of plans.keys().flatMap((n) => many(8, n))) {
    stage.network.answers.set(endpoint, "hang");
  }
  for (const plan of spread) stage.monitor.follow(plan);
  const starts = await stage.startsWithin(60_000);
  const inProgress = starts.map(([, at]) =>
    starts.filter(([, each]) => each <= at && each > at - 2020).length
  );
  assertEquals(Math.max(...inProgress), 128);
  assertEquals(new Set(starts.map(([endpoint]) => endpoint)).size, 400, "each has its turn");
  for (const { key } of spread) stage.monitor.forget(key);
  assertEquals((await stage.startsWithin(60_000)).length, 0);
  assertEquals([stage.clock.pendingTimers, stage.forwarding.loops.value], [0, 0]);
});

Deno.test("HealthMonitor checks the endpoints of a namespace in time while those of another hang", async () => {
  const stage = new Stage();
  const hanging = planOf(many(500), { edge: { ...CHECKED, healthTimeoutMs: 60_000 } });
  for (const endpoint of many(500)) stage.network.answers.set(endpoint, "hang");
  stage.monitor.follow(hanging);
  assertEquals((await stage.startsWithin(2000)).length, 86, "two thirds");
  const good = planOf(many(50, 1), {
    name: "good",
    edge: { ...CHECKED, healthIntervalMs: 10_000 },
  });
  stage.monitor.follow({ ...good, name: { ...good.name, namespace: "good" } });
  const starts = await stage.startsWithin(100_000);
  const counts = Map.groupBy(starts, ([endpoint]) => endpoint);
  assert(many(50, 1).every((each) => (counts.get(each)?.length ?? 0) >= 8), "each is checked");
  stage.monitor.close();
});

Deno.test("HealthMonitor waits for sockets that others have, and goes on", async () => {
  const openFiles = new OpenFiles();
  // One of each namespace, as one alone gets a part only.
  for (let others = 0; openFiles.takeCheck(`other${others}`);) others++;
  const stage = new Stage(undefined, openFiles);
  stage.monitor.follow(planOf(many(1)));
  assertEquals((await stage.startsWithin(5000)).length, 0);
  openFiles.giveCheck("other0");
  assertEquals((await stage.startsWithin(200)).length, 1);
  stage.monitor.close();
});
