import { assertEquals, assertRejects } from "@std/assert";
import { THIS_NODE } from "../../../tests/support/builders/address_plan.ts";
import { testNode, testService } from "../../../tests/support/builders/builders.ts";
import { manifestText, rawObjects } from "../../../tests/support/builders/raw_objects.ts";
import { configurationOf, ownFlags } from "../../../tests/support/drivers/own_flags.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { KindSpec } from "../../api/kind.ts";
import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import type { Controller, ControllerKind } from "../../engine/controller.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { followedKinds } from "../service/service_subscriptions.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { createLogger } from "../../log/create_logger.ts";
import { systemCommandRunner } from "../../os/command_runner.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { ControllerOpener, runProxy, StartCollection, watchInterfaces } from "./run_proxy.ts";
import { syncedEvent } from "../../../tests/support/builders/sync_events.ts";

const KINDS = followedKinds("iptables");

/** Started controllers with these kinds, named by their place; what happened is written down. */
function createStage(...kinds: readonly (readonly ControllerKind[])[]) {
  const stage = createStartingStage(...kinds);
  stage.opener.allow();
  return stage;
}

function createStartingStage(...kinds: readonly (readonly ControllerKind[])[]) {
  const clock = new FakeClock();
  const informers = new InformerSet();
  const calls: string[] = [];
  for (const { spec, informers: own } of kinds.flat()) if (!own) informers.subscribe(spec);
  const controllers = kinds.map((kinds, index) => (
    { kinds, open: () => void calls.push(`open ${index}`) }
  ));
  const opener = new ControllerOpener(clock, informers, controllers, {
    onObject: () => void calls.push("work"),
    onAllOpen: () => void calls.push("serving"),
  });
  const sync = (...specs: readonly KindSpec[]) => {
    for (const spec of specs) informers.of(spec).markSynced();
  };
  return { clock, informers, calls, opener, sync };
}

for (const mode of ["iptables", "nftables", "userspace"] as const) {
  Deno.test(`ControllerOpener waits one second for the ranges of cluster IPs in mode ${mode}, not longer`, async () => {
    const { clock, calls, sync } = createStage(followedKinds(mode));
    sync(SERVICE, NODE, ENDPOINTS, ENDPOINT_SLICE);
    await clock.advance(999);
    assertEquals(calls, []);
    await clock.advance(1);
    assertEquals(calls, ["open 0", "serving"]);
    sync(SERVICE_CIDR);
    assertEquals(calls, ["open 0", "serving"]);
  });
}

Deno.test("ControllerOpener opens no controller before all have started, however early its objects are", () => {
  const { calls, opener, sync } = createStartingStage(KINDS);
  sync(SERVICE, NODE, ENDPOINTS, ENDPOINT_SLICE, SERVICE_CIDR);
  assertEquals(calls, []);
  opener.allow();
  assertEquals(calls, ["open 0", "serving"]);
});

Deno.test("ControllerOpener waits five seconds for the Node, not longer, and opens once", async () => {
  const { clock, calls, sync } = createStage(KINDS);
  sync(SERVICE, ENDPOINT_SLICE, ENDPOINTS);
  await clock.advance(4999);
  assertEquals(calls, []);
  await clock.advance(1);
  assertEquals(calls, ["open 0", "serving"]);
  sync(NODE);
  assertEquals(calls, ["open 0", "serving"]);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ControllerOpener.stop() forgets the wait for the Node", async () => {
  const { clock, calls, opener, sync } = createStage(KINDS);
  sync(SERVICE, ENDPOINT_SLICE, ENDPOINTS);
  opener.stop();
  await clock.advance(60_000);
  assertEquals(calls, []);
});

Deno.test("ControllerOpener lets no controller wait for the kinds of another", () => {
  const { calls, sync } = createStage([{ spec: SERVICE }, { spec: NODE }], [{ spec: NODE }]);
  sync(NODE);
  assertEquals(calls, ["open 1"]);
  sync(SERVICE);
  assertEquals(calls, ["open 1", "open 0", "serving"]);
});

Deno.test("ControllerOpener expects work with each object that comes, changes or goes", () => {
  const { informers, calls } = createStage([{ spec: NODE }]);
  const nodes = informers.of(NODE);
  nodes.upsert(testNode());
  nodes.upsert(testNode());
  nodes.delete(testNode().metadata.name);
  assertEquals(calls, ["work", "work", "work"]);
});

Deno.test("ControllerOpener waits for kinds in the informers of their controller", () => {
  const own = new InformerSet();
  own.subscribe(SERVICE);
  const { calls, sync } = createStage([{ spec: NODE }], [{ spec: SERVICE, informers: own }]);
  sync(NODE);
  assertEquals(calls, ["open 0"]);
  own.of(SERVICE).markSynced();
  assertEquals(calls, ["open 0", "open 1", "serving"]);
});

Deno.test("watchInterfaces continues looking, and reports it, when the addresses cannot be read", async () => {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const fake = new FakeNetwork();
  let isExhausted = true;
  const network = {
    interfaceAddresses() {
      if (isExhausted) throw new Error("Too many open files (os error 24)");
      return fake.interfaceAddresses();
    },
  };
  let calls = 0;
  using _ = watchInterfaces({ clock, logger, network }, [
    { onInterfaceAddresses: () => void calls++ },
  ]);
  await clock.advance(10_000);
  assertEquals([calls, logger.lines.map(({ level }) => level)], [0, ["warn", "warn"]]);
  isExhausted = false;
  await clock.advance(10_000);
  assertEquals([calls, logger.lines.length], [1, 2]);
});

Deno.test("watchInterfaces leaves out addresses that a controller added", () => {
  const network = {
    interfaceAddresses: (): InterfaceAddress[] => [
      { interfaceName: "eth0", address: parseIpAddress("192.0.2.7") },
      { interfaceName: "eth0", address: parseIpAddress("198.51.100.2") },
    ],
  };
  let seen: readonly InterfaceAddress[] = [];
  using _ = watchInterfaces(
    { clock: new FakeClock(), logger: new MemoryLogger(), network },
    [{
      onInterfaceAddresses: (addresses) => void (seen = addresses),
      ownsAddress: ({ address }) => address === "192.0.2.7",
    }],
  );
  assertEquals(seen.map(({ address }) => `${address}`), ["198.51.100.2"]);
});

Deno.test("StartCollection collects once, after the first complete syncs, and leaves no timer", async () => {
  const clock = new FakeClock();
  let collections = 0;
  using collection = new StartCollection(clock, () => void collections++);
  const ipv4 = { controller: "service", family: "IPv4" } as const;
  const ipv6 = { controller: "service", family: "IPv6" } as const;
  collection.on(syncedEvent(ipv4, false));
  await clock.advance(10_000);
  assertEquals(collections, 0);
  collection.on(syncedEvent(ipv4, true));
  await clock.advance(500);
  collection.on(syncedEvent(ipv6, true));
  await clock.advance(10_000);
  assertEquals(collections, 1);
  collection.on(syncedEvent(ipv4, true));
  await clock.advance(10_000);
  assertEquals([collections, clock.pendingTimers], [1, 0]);
  const unused = new StartCollection(clock, () => {});
  unused.on(syncedEvent(ipv4, true));
  unused[Symbol.dispose]();
  assertEquals(clock.pendingTimers, 0);
});

/** Runs with this backend and controller of a test; `events` gets the log. */
async function runWith(
  backend: FakeBackend,
  { folder, events = [], signal, startMore }: {
    readonly folder: string;
    readonly events?: string[];
    readonly signal: AbortSignal;
    /** Starts a controller besides that of Services. @default {there is none} */
    readonly startMore?: (tasks: TaskGroup) => Promise<void>;
  },
): Promise<void> {
  const [manifests, uid] = [`${folder}/services.yaml`, Deno.uid() ?? undefined];
  await Deno.writeTextFile(manifests, manifestText(rawObjects("Service", testService("web"))));
  const configuration = await configurationOf([
    `--manifests=${manifests}`,
    "--address-mode=none",
    `--hostname-override=${THIS_NODE}`,
    ...ownFlags(folder),
  ], { uid });
  const done = () => Promise.resolve();
  const more: Controller = {
    ...{ name: "routing", kinds: [], activity: [], start: startMore ?? done, open() {} },
    ...{ onInterfaceAddresses() {}, stop: done, drain: done, [Symbol.asyncDispose]: done },
    status: () => Promise.resolve({ controller: "routing", families: [], facts: [] }),
  };
  await runProxy(
    {
      ...testDependencies({
        ...{ commands: systemCommandRunner, backends: { userspace: () => backend } },
        process: { pid: Deno.pid, uid, hostname: THIS_NODE },
      }),
      logger: createLogger({ format: "text", verbosity: 0, sink: (line) => events.push(line) }),
      moreControllers: startMore === undefined ? [] : [{
        ...{ name: "routing", isEnabled: () => true, create: () => more },
        async *cleanUp() {},
      }],
    },
    { ...configuration, mode: "userspace", families: ["IPv4"] },
    signal,
  );
}

Deno.test("runProxy() that is to stop while it starts writes nothing", async () => {
  const [events, controller]: [string[], AbortController] = [[], new AbortController()];
  const backend = new class extends FakeBackend {
    override async start(): Promise<void> {
      const isRead = () => events.some((line) => line.includes("Read manifests"));
      await eventually("the manifests are read", isRead);
      controller.abort();
    }
  }();
  await withFolder((folder) => runWith(backend, { folder, events, signal: controller.signal }));
  assertEquals(backend.syncs, []);
});

Deno.test("runProxy() stops what starts, and waits for it, when a controller cannot start", async () => {
  const events: string[] = [];
  const starting = Promise.withResolvers<void>();
  const stopped = Promise.withResolvers<void>();
  const backend = new class extends FakeBackend {
    override async start(): Promise<void> {
      starting.resolve();
      await stopped.promise;
      events.push("started");
    }

    override [Symbol.asyncDispose](): Promise<void> {
      events.push("disposed");
      return Promise.resolve();
    }
  }();
  const startMore = async ({ signal }: TaskGroup) => {
    await starting.promise;
    void whenAborted(signal).then(stopped.resolve);
    throw new Error("no route");
  };
  const { signal } = new AbortController();
  const running = withFolder((folder) => runWith(backend, { folder, events, signal, startMore }));
  await assertRejects(() => running, Error, "no route");
  const found = events.map((line) => /started|disposed|phase=stopping/.exec(line)?.[0]);
  assertEquals(found.filter(Boolean), ["started", "phase=stopping", "disposed"]);
});

Deno.test("runProxy() has recorded the mode before this does anything", () =>
  withFolder(async (folder) => {
    const controller = new AbortController();
    let recorded: string | undefined;
    const backend = new class extends FakeBackend {
      override async start(): Promise<void> {
        recorded = await Deno.readTextFile(`${folder}/state/modes`).catch(() => undefined);
        controller.abort();
      }
    }();
    await runWith(backend, { folder, signal: controller.signal });
    assertEquals(recorded, "userspace\n");
  }));
