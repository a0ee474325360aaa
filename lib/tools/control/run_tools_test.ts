import { assert, assertEquals } from "@std/assert";
import {
  serviceLoop,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { OpenFiles } from "../../os/open_files.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import type { Backend } from "../../proxy/backend.ts";
import { ServiceFamily, Services } from "../../app/service/services.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import { ToolsOfRun } from "./run_tools.ts";
import { planSettingsOf } from "../../app/run/plan_settings.ts";

/** A backend that counts calls which only an inspection makes. */
class AskedBackend extends FakeBackend {
  readonly asked: string[] = [];
  override explain: Backend["explain"] = () => this.#note("explain", { carriers: [] });
  override compare: Backend["compare"] = () => this.#note("compare", Promise.resolve([]));

  #note<Answer>(what: string, answer: Answer): Answer {
    this.asked.push(what);
    return answer;
  }
}

const FLAGS = { config: "c.yaml", kubeconfig: "/etc/k", manifests: ["m", "/n"], mode: "auto" };

/** One family with a change log, and questions to it; which of its parts were looked at is counted. */
async function createStage() {
  const clock = new FakeClock();
  const backend = new AskedBackend();
  const logger = new MemoryLogger();
  const edges = { ...testDependencies({ clock }), logger, openFiles: new OpenFiles() };
  const tools = new ToolsOfRun(edges);
  const { changes } = tools;
  const configuration = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
  const settings = planSettingsOf(configuration, { nodeName: "node-a", mode: "userspace" });
  const recorder = changes.followServices(serviceLoop("IPv4"), 1000);
  const proxy = new ServiceFamily(
    {
      ...{ clock, logger: logger, backend, serviceListeners: [], listeners: [] },
      metrics: { syncQueued() {}, syncFinished() {}, syncFailed() {}, syncSucceeded() {} },
    },
    new Services({ clock, recorder }, "IPv4", settings, { node: testNodeState() }),
    { minPeriodMs: 1000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    recorder,
  );
  const looked = new Set<PropertyKey>();
  const run = new Proxy(
    {
      services: { families: [proxy] },
      others: [],
      configuration: { flags: FLAGS },
    } as unknown as ObservedRun,
    {
      get(target, name, receiver) {
        looked.add(name);
        return Reflect.get(target, name, receiver);
      },
    },
  );
  await proxy.start();
  const routes = tools.routes(run);
  looked.clear();
  return { clock, backend, changes, proxy, routes, looked };
}

Deno.test("ToolsOfRun looks at nothing and sets no timer until it is asked", async () => {
  const { clock, backend, changes, proxy, routes, looked } = await createStage();
  proxy.services.onService(undefined, testService("web"));
  proxy.open();
  await clock.advance(5000);
  const timers = clock.pendingTimers;
  for (let count = 0; count < 20; count++) {
    const addresses = [`10.1.0.${count + 1}`];
    proxy.services.onSlice(
      undefined,
      testEndpointSlice("web", { endpoints: [{ addresses }] }),
    );
    await clock.advance(5000);
  }
  assert(changes.recent().entries.length > 10, "there were no syncs");
  assertEquals(clock.pendingTimers, timers);
  assertEquals([...looked], []);
  assertEquals(backend.asked, []);
  await routes["/changes"]({ last: "1" });
  assertEquals(backend.asked, []);
  await proxy.loop.stop();
});

Deno.test("ToolsOfRun answers paths of flags as another folder needs them", async () => {
  const { routes } = await createStage();
  const cwd = Deno.cwd();
  assertEquals(await routes["/flags"]({}), {
    ...FLAGS,
    config: `${cwd}/c.yaml`,
    manifests: [`${cwd}/m`, "/n"],
  });
});
