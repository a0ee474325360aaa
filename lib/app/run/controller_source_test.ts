import { assertEquals, assertStringIncludes } from "@std/assert";
import { writeKubeconfig } from "../../../tests/support/builders/kubeconfig_file.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { ACCESS_REVIEW_PATH, FakeApiServer } from "../../../tests/support/fakes/fake_api_server.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { fakeHostChecks } from "../../../tests/support/fakes/fake_host_checks.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { POD } from "../../api/kinds/pod.ts";
import { loadConfiguration } from "../../config/load.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { type Clock, systemClock } from "../../os/clock.ts";
import { POLICY_ACCESS } from "../policy/policy_settings.ts";
import { ControllerSource } from "./controller_source.ts";
import {
  NO_POLICY_BACKENDS,
  TEST_PROCESS,
} from "../../../tests/support/fakes/test_dependencies.ts";

/** The system's clock, but that its sleeps end when a test says so; their time has passed then. */
class HeldClock implements Clock {
  readonly waits: { readonly ms: number; readonly end: () => void }[] = [];
  #sleptMs = 0;
  now = () => systemClock.now() + this.#sleptMs;
  wallNow = () => systemClock.wallNow();
  setTimer: Clock["setTimer"] = (ms, action) => systemClock.setTimer(ms, action);
  yieldToEventLoop = () => systemClock.yieldToEventLoop();
  nextTurn = () => systemClock.nextTurn();

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    const end = () => {
      this.#sleptMs += ms;
      resolve();
    };
    this.waits.push({ ms, end });
    return promise;
  }
}

async function start(file: string) {
  const clock = new HeldClock();
  const [logger, informers] = [new MemoryLogger(), new InformerSet()];
  const pods = informers.subscribe(POD);
  const process = TEST_PROCESS;
  const configuration = await loadConfiguration(
    { uid: 0, env: () => undefined, readTextFile: () => Promise.reject(new Error("unexpected")) },
    { flags: { "network-policy": true, kubeconfig: "/nonexistent", "policy-kubeconfig": file } },
  );
  const source = new ControllerSource(
    {
      ...{ clock, logger, process, random: () => 0, backends: {} },
      policyBackends: NO_POLICY_BACKENDS,
      ...{ network: new FakeNetwork(), commands: new FakeCommandRunner() },
      ...{ hostChecks: fakeHostChecks(), print: () => {}, complain: () => {} },
    },
    configuration,
    file,
    informers,
    POLICY_ACCESS,
  );
  const controller = new AbortController();
  const running = source.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await running;
  };
  return { clock, logger, pods, source, stop };
}

Deno.test("ControllerSource reads by its own kubeconfig, once the API server allows it", () =>
  withFolder(async (folder) => {
    await using fake = await FakeApiServer.start();
    fake.store.create({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace: "default", name: "web-1" },
      spec: {},
      status: { podIP: "10.42.0.9" },
    });
    fake.deniedAccess.add("list /api/v1/pods");
    const file = `${folder}/kubeconfig`;
    const { clock, logger, pods, source, stop } = await start(file);
    try {
      await eventually("the kubeconfig is missed", () => clock.waits.length === 1);
      assertStringIncludes(source.status()[0]!.state, "no NetworkPolicy is enforced");
      await writeKubeconfig(file, {
        ...{ server: fake.url, ca: fake.ca },
        user: { token: fake.rotateToken() },
      });
      clock.waits[0]!.end();
      await eventually("access is refused", () => clock.waits.length === 2);
      assertEquals(source.status()[0]!.problems[0], "no right to list pods");
      assertEquals(fake.requests.some(({ path }) => path === "/api/v1/pods"), false);
      fake.deniedAccess.clear();
      clock.waits[1]!.end();
      await eventually("the pod is seen", () => pods.get("default/web-1") !== undefined);
      assertEquals(source.status()[0]!.state, "granted");
      const errors = logger.lines.filter(({ level }) => level === "error");
      assertEquals(errors.length, 2);
      for (const { message } of errors) assertStringIncludes(message, "are NOT enforced");
    } finally {
      await stop();
    }
  }));

Deno.test("ControllerSource ends with its signal, whatever it waits for, and closes its connection", () =>
  withFolder(async (folder) => {
    await using fake = await FakeApiServer.start();
    fake.deniedAccess.add("list /api/v1/pods");
    const file = `${folder}/kubeconfig`;
    const withoutFile = await start(file);
    await eventually("the kubeconfig is missed", () => withoutFile.clock.waits.length === 1);
    await withoutFile.stop();
    const user = { token: fake.rotateToken() };
    await writeKubeconfig(file, { server: fake.url, ca: fake.ca, user });
    const { clock, stop } = await start(file);
    await eventually("access is refused", () => clock.waits.length === 1);
    await stop();
    await eventually("the connection is closed", () => fake.connections === 0);
  }));

Deno.test("ControllerSource asks again while the server is overloaded, logs a refusal once, and does without reviews", () =>
  withFolder(async (folder) => {
    await using fake = await FakeApiServer.start();
    const file = `${folder}/kubeconfig`;
    await writeKubeconfig(file, {
      server: fake.url,
      ca: fake.ca,
      user: { token: fake.rotateToken() },
    });
    const count = POLICY_ACCESS.accesses.length;
    fake.deniedAccess.add("list /api/v1/pods");
    const { clock, logger, source, stop } = await start(file);
    const errors = () => logger.lines.filter(({ level }) => level === "error").length;
    try {
      await eventually("access is refused", () => clock.waits.length === 1);
      clock.waits[0]!.end();
      await eventually("access is refused again", () => clock.waits.length === 2);
      assertEquals([clock.waits.map(({ ms }) => ms), errors()], [[5_000, 10_000], 1]);
      fake.failNext({ status: 429, path: ACCESS_REVIEW_PATH, times: count });
      clock.waits[1]!.end();
      await eventually("the server is overloaded", () => clock.waits.length === 3);
      assertStringIncludes(source.status()[0]!.state, "not answered: ");
      fake.failNext({ status: 404, path: ACCESS_REVIEW_PATH, times: count });
      clock.waits[2]!.end();
      await eventually("the watches say the rest", () => source.status()[0]!.state === "unknown");
      assertEquals([source.status()[0]!.problems, errors()], [[], 1]);
    } finally {
      await stop();
    }
  }));

Deno.test("ControllerSource asks again within a minute however often it failed, and never as often as at first", () =>
  withFolder(async (folder) => {
    const { clock, stop } = await start(`${folder}/kubeconfig`);
    try {
      for (let failures = 1; failures <= 9; failures++) {
        await eventually("the kubeconfig is missed", () => clock.waits.length === failures);
        clock.waits.at(-1)!.end();
      }
      const seconds = clock.waits.slice(0, 9).map(({ ms }) => ms / 1000);
      assertEquals(seconds, [5, 10, 20, 40, 60, 60, 60, 60, 60]);
    } finally {
      await stop();
    }
  }));
