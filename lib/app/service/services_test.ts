import { assertEquals } from "@std/assert";
import { ADDRESSES } from "../../../tests/support/builders/address_plan.ts";
import {
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import type { Logger } from "../../log/logger.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { SyncFailure } from "../../engine/sync_event.ts";
import { createServiceFamily, ServiceFamily, Services } from "./services.ts";
import { collectFamilyStatus } from "./service_status.ts";
import type { ServiceSyncListener } from "../change_listener.ts";
import type { BackendDependencies } from "../dependencies.ts";
import { BACKEND_MODES } from "../../proxy/backend.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { planSettingsOf } from "../run/plan_settings.ts";

interface Rig extends AsyncDisposable {
  readonly clock: FakeClock;
  readonly backend: FakeBackend;
  readonly proxy: ServiceFamily;
  readonly health: ProxyHealth;
  /** Messages of the log, and calls of the metrics. */
  readonly reports: string[];
  /** Of each sync that ended, whether it was full, as far as that is known. */
  readonly finished: readonly (boolean | undefined)[];
  /** Times at which a sync was asked for, in milliseconds since 1970. */
  readonly queued: readonly number[];
  /** Of each good sync, whether a plan of all objects is in effect. */
  readonly complete: readonly boolean[];
}

function createLogger(reports: string[]): Logger {
  const logger: Logger = {
    error: (message) => void reports.push(message),
    warn: (message, fields) => {
      reports.push(message);
      if (typeof fields?.found === "string") reports.push(fields.found);
    },
    info: (message) => void reports.push(message),
    verbose: () => {},
    enabled: () => false,
    with: () => logger,
  };
  return logger;
}

function createRig(serviceListeners: readonly ServiceSyncListener[] = []): Rig {
  const clock = new FakeClock();
  const backend = new FakeBackend();
  const health = new ProxyHealth({ clock }, { timeoutMs: 60_000 });
  const reports: string[] = [];
  const finished: (boolean | undefined)[] = [];
  const queued: number[] = [];
  const complete: boolean[] = [];
  const metrics: ConstructorParameters<typeof ServiceFamily>[0]["metrics"] = {
    syncQueued: (_, at) => void queued.push(at),
    syncFinished: (_, { full }) => void finished.push(full),
    syncSucceeded: (_, { programmingSeconds, noLocalEndpoints }) => {
      if (programmingSeconds.length > 0) reports.push(`programmed in ${programmingSeconds} s`);
      if (noLocalEndpoints.internal > 0) reports.push(`${noLocalEndpoints.internal} without local`);
    },
    syncFailed: () => void reports.push("sync failed"),
  };
  const configuration = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
  const settings = planSettingsOf(configuration, {
    nodeName: testNodeState().name,
    mode: "userspace",
  });
  const completeness: ServiceSyncListener = {
    on: (event) => void (event.kind === "synced" && complete.push(event.isComplete)),
  };
  const proxy = new ServiceFamily(
    {
      ...{ clock, logger: createLogger(reports), metrics, backend, serviceListeners },
      listeners: [health, completeness],
    },
    new Services({ clock }, "IPv4", settings, { node: testNodeState() }),
    { minPeriodMs: 1000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
  );
  return {
    ...{ clock, backend, proxy, health, reports, finished, queued, complete },
    [Symbol.asyncDispose]: () => proxy.loop.stop(),
  };
}

const WEB = "ns1/web/TCP";
const { IPv4 } = ADDRESSES;

function addWeb(proxy: ServiceFamily, endpoints: readonly string[] = ["10.0.0.1"]): void {
  proxy.services.onService(undefined, testService("web"));
  proxy.services.onSlice(undefined, testEndpointSlice("web", { endpoints }));
}

function heldEndpoints({ backend }: Rig): readonly string[] {
  const verdict = [...backend.held.values()][0]?.internal;
  return verdict?.kind === "forward" ? verdict.endpoints.map(({ address }) => address) : [];
}

Deno.test("ServiceFamily syncs nothing before it is opened, then everything at once", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  addWeb(rig.proxy);
  await rig.clock.advance(60_000);
  assertEquals(rig.backend.syncs, []);
  rig.proxy.open();
  await rig.clock.advance(0);
  assertEquals(rig.backend.syncs, [{ upserted: [WEB], removed: [], everything: true }]);
  assertEquals(heldEndpoints(rig), ["10.0.0.1"]);
});

Deno.test("ServiceFamily that is opened early reports it to its backend, until all is known", async () => {
  await using rig = createRig();
  rig.backend.takesPartialPlans = true;
  await rig.proxy.start();
  addWeb(rig.proxy);
  rig.proxy.openEarly();
  await rig.clock.advance(0);
  const [web] = rig.backend.syncs;
  assertEquals(web, { upserted: [WEB], removed: [], everything: true, isPartial: true });
  assertEquals(rig.complete, [false]);
  rig.proxy.open();
  await rig.clock.advance(1_000);
  assertEquals(rig.backend.syncs.slice(1), [{ upserted: [], removed: [], everything: false }]);
  assertEquals(rig.complete, [false, true]);
});

Deno.test("ServiceFamily keeps the changes of failed syncs and retries, the first sync included", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  addWeb(rig.proxy);
  rig.backend.failures.push(new Error("no such device"), new Error("no such device"));
  rig.proxy.open();
  await rig.clock.advance(0);
  assertEquals(rig.backend.held.size, 0);
  const other = testService("other", { clusterIP: "172.30.0.99" });
  rig.proxy.services.onService(undefined, other);
  rig.proxy.services.onService(testService("web"), undefined);
  await rig.clock.advance(10_000);
  assertEquals([...rig.backend.held.keys()], ["ns1/other/TCP"]);
  assertEquals(rig.backend.syncs.at(-1)!.everything, true);
  assertEquals(rig.proxy.loop.status("").failures, 0);
  assertEquals(rig.reports.filter((line) => line === "sync failed").length, 2);
});

Deno.test("ServiceFamily tries a quarantined ServicePort again and reports it once", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  addWeb(rig.proxy);
  rig.backend.refusals.set(WEB, "port 80 is taken");
  rig.proxy.open();
  await rig.clock.advance(3000);
  assertEquals(rig.proxy.loop.quarantined, [{ key: WEB, reason: "port 80 is taken" }] as never);
  rig.backend.refusals.clear();
  await rig.clock.advance(3000);
  assertEquals([...rig.backend.held.keys()], [WEB]);
  assertEquals(rig.proxy.loop.quarantined, []);
  assertEquals(rig.reports, [
    "Service port is in quarantine; it is tried again, all others work",
    "Service port is out of quarantine",
  ]);
});

Deno.test("ServiceFamily turns unhealthy while its syncs fail for a minute, and recovers", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  rig.backend.failures.push(...Array.from({ length: 400 }, () => new Error("broken")));
  rig.proxy.open();
  await rig.clock.advance(59_000);
  assertEquals(rig.health.healthy(), true);
  await rig.clock.advance(2000);
  assertEquals(rig.health.healthy(), false);
  rig.backend.failures.length = 0;
  await rig.clock.advance(2000);
  assertEquals(rig.health.healthy(), true);
});

Deno.test("ServiceFamily follows the addresses of the machine, except its own", async () => {
  await using rig = createRig();
  const own = parseIpAddress(IPv4.clusterIp);
  rig.backend.own.add(own);
  await rig.proxy.start();
  const on = (address: typeof own) => ({ interfaceName: "eth0", address });
  rig.proxy.onInterfaceAddresses([on(parseIpAddress(IPv4.node))]);
  rig.proxy.open();
  await rig.clock.advance(0);
  assertEquals(rig.proxy.services.plan.shared.nodePortAddresses, [IPv4.node]);
  const now = [IPv4.node, "192.168.0.77", "fd00::77", own].map((text) => parseIpAddress(text));
  rig.proxy.onInterfaceAddresses(now.sort().map(on));
  await rig.clock.advance(2000);
  assertEquals(
    rig.proxy.services.plan.shared.nodePortAddresses,
    [
      IPv4.node,
      parseIpAddress("192.168.0.77"),
    ].sort(),
  );
});

Deno.test("ServiceFamily measures the time until a change of endpoints takes effect", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  rig.proxy.services.onService(undefined, testService("web"));
  rig.proxy.open();
  await rig.clock.advance(5000);
  const changed = new Date(rig.clock.wallNow() - 1500).toISOString();
  rig.proxy.services.onSlice(
    undefined,
    testEndpointSlice("web", {
      endpoints: ["10.0.0.1"],
      metadata: {
        annotations: { "endpoints.kubernetes.io/last-change-trigger-time": changed },
      },
    }),
  );
  await rig.clock.advance(0);
  assertEquals(rig.reports, ["programmed in 1.5 s"]);
});

Deno.test("ServiceFamily counts Services whose endpoints are all on other nodes", async () => {
  await using rig = createRig();
  await rig.proxy.start();
  rig.proxy.services.onService(undefined, testService("web", { internalTrafficPolicy: "Local" }));
  rig.proxy.services.onSlice(undefined, testEndpointSlice("web", { endpoints: ["10.0.0.1"] }));
  rig.proxy.open();
  await rig.clock.advance(0);
  assertEquals(rig.reports, ["1 without local"]);
  rig.proxy.services.onService(testService("web", { internalTrafficPolicy: "Local" }), undefined);
  await rig.clock.advance(5000);
  assertEquals(rig.proxy.services.noLocalEndpoints(), { internal: 0, external: 0 });
});

Deno.test("ServiceFamily reports a fault of an object once, although it is deleted and recreated", async () => {
  const { clock, proxy, reports, backend } = createRig();
  proxy.open();
  const wrong = testService("web", { externalIPs: ["not-an-address"] });
  for (let turn = 0; turn < 15; turn++) {
    proxy.services.onService(undefined, wrong);
    await clock.advance(2000);
    proxy.services.onService(wrong, undefined);
    await clock.advance(2000);
  }
  assertEquals(backend.syncs.filter(({ removed }) => removed.length > 0).length, 15);
  assertEquals(reports.length, 1, reports.join("\n"));
  await proxy.loop.stop();
});

Deno.test("ServiceFamily names the slices with other ports where a ServicePort has no endpoints, once per change", async () => {
  const { clock, proxy, reports } = createRig();
  await proxy.start();
  proxy.open();
  const message = "Service port has no endpoints; its Service has some for other ports";
  const statusOf = async () => {
    const { services } = await collectFamilyStatus(clock, proxy, { brief: false });
    return services.map(({ name, otherPorts }) => [name, otherPorts]);
  };
  const sync = async () => {
    reports.length = 0;
    await proxy.loop.sync();
    return reports.filter((each) => !each.startsWith("programmed"));
  };
  const slice = (endpoints: string[], ports: { name?: string; port: number }[]) =>
    testEndpointSlice("web", { endpoints, ports });
  const ports = [{ name: "http", port: 80 }];
  proxy.services.onService(undefined, testService("web", { clusterIP: "172.30.0.41", ports }));
  assertEquals(await sync(), []);
  const one = slice(["10.180.0.1"], [{ name: "web", port: 8080 }]);
  proxy.services.onSlice(undefined, one);
  const found = "slice web-1 has 1 endpoint, but its port is 'web'; the Service has 'http'";
  assertEquals((await sync()).slice(0, 2), [message, found]);
  assertEquals(await statusOf(), [["ns1/web:http", [found]]]);
  const two = slice(["10.180.0.1", "10.180.0.2"], [{ name: "web", port: 8080 }]);
  proxy.services.onSlice(one, two);
  assertEquals((await sync()).includes(message), false);
  const bare = slice(["10.180.0.1", "10.180.0.2"], []);
  proxy.services.onSlice(two, bare);
  const portless = "slice web-1 has 2 endpoints, but it has no port; the Service has 'http'";
  assertEquals((await sync()).slice(0, 2), [message, portless]);
  const many = slice(["10.180.0.1"], [{ port: 1 }, { name: "a", port: 2 }]);
  proxy.services.onSlice(bare, many);
  assertEquals(
    (await sync())[1],
    "slice web-1 has 1 endpoint, but its ports are one without a name, 'a'; the Service has 'http'",
  );
  proxy.services.onSlice(many, slice(["10.180.0.1"], ports));
  assertEquals((await sync()).includes(message), false);
  assertEquals(await statusOf(), [["ns1/web:http", undefined]]);
});

Deno.test("ServiceFamily counts its start as a request, and full and partial syncs", async () => {
  await using rig = createRig();
  const startedAt = rig.clock.wallNow();
  await rig.proxy.start();
  assertEquals(rig.queued, [startedAt]);
  rig.backend.failures.push(
    new Error("no such device"),
    new SyncFailure("Cannot write rules", { full: true }),
  );
  addWeb(rig.proxy);
  rig.proxy.open();
  await rig.clock.advance(10_000);
  rig.proxy.services.onService(undefined, testService("other", { clusterIP: "172.30.0.99" }));
  await rig.clock.advance(10_000);
  assertEquals(rig.finished, [undefined, true, true, false]);
});

Deno.test("ServiceFamily plans every Service again with other settings, once", async () => {
  const { clock, proxy, backend } = createRig();
  addWeb(proxy);
  proxy.open();
  await clock.advance(5000);
  const configuration = defaultConfiguration();
  const iptables = { ...configuration.iptables, masqueradeAll: true };
  const changed = { ...configuration, bindAddress: "0.0.0.0", iptables };
  proxy.services.onSettings(planSettingsOf(changed, { nodeName: "node-a", mode: "iptables" }));
  assertEquals(proxy.services.pending, true);
  await clock.advance(5000);
  assertEquals(backend.syncs.slice(1), [{ upserted: [WEB], removed: [], everything: true }]);
  assertEquals([...backend.held.values()].map((plan) => plan.masqueradeInternal), ["all"]);
  assertEquals(proxy.services.pending, false);
  await proxy.loop.stop();
});

Deno.test("ServiceFamily has pending work while its environment differs from the plan", async () => {
  const { proxy: { services, loop } } = createRig();
  const changes = [
    () => services.onNode(testNodeState({ zone: "elsewhere" })),
    () => services.onServiceCidrs([parseCidr("10.96.0.0/12")]),
    () => services.onInterfaceAddresses([parseIpAddress("192.0.2.7")]),
  ];
  for (const change of changes) {
    change();
    assertEquals(services.pending, true);
    await loop.sync();
    assertEquals(services.pending, false);
    change();
    assertEquals(services.pending, false, "no news");
  }
});

Deno.test("ServiceFamily plans with the Node that came while it drained, as its cause is recorded with it", async () => {
  const onTurn = { run: () => {} };
  let ms = 0;
  const nextTurn = () => Promise.resolve(onTurn.run());
  const clock = Object.assign(new FakeClock(), { nextTurn, now: () => ms += 5 });
  const settings = planSettingsOf(
    { ...defaultConfiguration(), bindAddress: "0.0.0.0" },
    { nodeName: "node-a", mode: "userspace" },
  );
  const services = new Services({ clock }, "IPv4", settings);
  const sync = async () => {
    const { changes } = await services.collectChanges([]);
    services.synced({ full: false, operations: {}, quarantined: [], services: 0 }, changes);
    return changes;
  };
  await sync();
  for (let i = 0; i < 1_000; i++) services.onService(undefined, testService(`s${i}`));
  onTurn.run = () => services.onNode(testNodeState({ zone: "elsewhere" }));
  assertEquals([(await sync()).everything, services.pending], [true, false]);
});

Deno.test("ServiceFamily reports and retries what a repair of drift left out", async () => {
  const { backend, clock, reports } = createRig();
  let onDrift: BackendDependencies["onDrift"];
  const nothing = () => {};
  const parts = {
    clock,
    logger: createLogger(reports),
    random: () => 0,
    configuration: { proxy: defaultConfiguration(), relay: { manifests: [] }, mode: "iptables" },
    changes: { followServices: nothing, driftFound: nothing },
    judges: new Map(),
    metrics: {
      ...{ syncQueued: nothing, syncFinished: nothing, syncSucceeded: nothing },
      driftFound: nothing,
    },
    backends: {
      iptables: (edges: BackendDependencies) => {
        onDrift = edges.onDrift;
        return backend;
      },
    },
    listeners: [],
    serviceListeners: [],
  };
  const settings = planSettingsOf(defaultConfiguration(), {
    nodeName: "node-a",
    mode: "iptables",
  });
  const { services, loop } = createServiceFamily(parts as never, "IPv4", settings, undefined);
  services.onService(undefined, testService("web"));
  loop.open();
  await clock.advance(10_000);
  assertEquals([backend.syncs.length, loop.quarantined], [1, []]);
  const quarantined = [{ key: WEB as ServicePortKey, reason: "No space left" }];
  const sync = backend.sync.bind(backend);
  backend.sync = async (...args) => ({ ...await sync(...args), quarantined });
  onDrift?.({ kind: "chain", found: 1, repaired: 1 });
  await clock.advance(10_000);
  assertEquals(loop.quarantined.map(({ reason }) => reason), ["No space left"]);
  assertEquals(backend.syncs.at(-1)?.upserted, [WEB]);
  await loop.stop();
});

Deno.test("ServiceFamily leaves out external IPs if they are not allowed", async () => {
  const settings = planSettingsOf(
    { ...defaultConfiguration(), bindAddress: "0.0.0.0" },
    { nodeName: "node-a", mode: "userspace" },
  );
  const options = { allowExternalIps: false };
  const services = new Services({ clock: new FakeClock() }, "IPv4", settings, options);
  services.onService(undefined, testService("a", { externalIPs: ["192.0.2.7"] }));
  await services.collectChanges([]);
  assertEquals([...services.plan.services.values()].flatMap((plan) => plan.externalIps), []);
});

Deno.test("Services reports direct server return in modes that ignore it", async () => {
  const annotations = { "kube-router.io/service.dsr": "tunnel" };
  for (const mode of ["iptables", "ipvs", "nftables", "userspace"] as const) {
    const settings = planSettingsOf(defaultConfiguration(), { nodeName: "node-a", mode });
    const services = new Services({ clock: new FakeClock() }, "IPv4", settings, { mode });
    const service = testService("a");
    const { metadata } = service;
    services.onService(undefined, { ...service, metadata: { ...metadata, annotations } });
    const { changes } = await services.collectChanges([]);
    const report = { full: true, operations: {}, quarantined: [], services: 1 };
    assertEquals(
      services.synced(report, changes).map(({ reason }) => reason),
      mode === "ipvs" ? [] : [
        `mode ${mode} ignores annotation kube-router.io/service.dsr: only mode ipvs has direct ` +
        "server return",
      ],
    );
  }
});

for (const mode of BACKEND_MODES) {
  const isShared = mode === "userspace";
  const words = isShared ? "shared by server names" : "of one Service alone";
  Deno.test(`Services has an external IP ${words} in mode ${mode}`, async () => {
    const settings = planSettingsOf(defaultConfiguration(), { nodeName: "node-a", mode });
    const services = new Services({ clock: new FakeClock() }, "IPv4", settings);
    for (const [name, clusterIP] of [["a", "10.96.0.1"], ["b", "10.96.0.2"]] as const) {
      const metadata = { annotations: { "kube-relay.io/sni": `${name}.example.com` } };
      const spec = { clusterIP, externalIPs: ["192.0.2.7"] };
      services.onService(undefined, testService(name, spec, { metadata }));
    }
    await services.collectChanges([]);
    const plans = [...services.plan.services.values()];
    assertEquals(plans.map(({ externalIps }) => externalIps.length), [1, isShared ? 1 : 0]);
    assertEquals(
      plans.flatMap(({ shared = [] }) => shared.flatMap(({ names }) => names)),
      isShared ? ["a.example.com", "b.example.com"] : [],
    );
  });
}

Deno.test("ServiceFamily changes nothing before the followers are ready", async () => {
  const ready = Promise.withResolvers<void>();
  const reported: string[] = [];
  const { proxy: { loop, services }, backend } = createRig([{
    on(event) {
      if (event.kind !== "syncing" && event.kind !== "synced") return undefined;
      reported.push(`${event.kind} ${event.changes.upserted.size} of ${event.plan.services.size}`);
      return event.kind === "syncing" ? ready.promise : undefined;
    },
  }]);
  backend.failures.push(new Error("busy"));
  services.onService(undefined, testService("web"));
  const syncing = loop.sync();
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  assertEquals([reported, backend.syncs.length], [["syncing 1 of 1"], 0]);
  ready.resolve();
  assertEquals([await syncing, backend.syncs.length], ["retry", 1]);
  assertEquals(await loop.sync(), "done");
  assertEquals(reported, ["syncing 1 of 1", "syncing 1 of 1", "synced 1 of 1"]);
});
