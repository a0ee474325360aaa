/**
 * A run with Services and, if it is enabled, the made-up controller.
 *
 * @module
 */
import { ToolsOfRun } from "../../../lib/tools/control/run_tools.ts";
import { requestStatus } from "../../../lib/tools/control/control_client.ts";
import type { BackendOptions } from "../../../lib/app/dependencies.ts";
import { runProxy } from "../../../lib/app/run/run_proxy.ts";
import { createLogger } from "../../../lib/log/create_logger.ts";
import { THIS_NODE } from "../builders/address_plan.ts";
import { testNode, testService } from "../builders/builders.ts";
import { writeKubeconfig } from "../builders/kubeconfig_file.ts";
import { lantern } from "../builders/lantern.ts";
import { rawObjects } from "../builders/raw_objects.ts";
import { unusedPort } from "../drivers/unused_port.ts";
import { eventually } from "../eventually.ts";
import { FakeApiServer } from "../fakes/fake_api_server.ts";
import { FakeBackend } from "../fakes/fake_backend.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { FakeCommandRunner } from "../fakes/fake_command_runner.ts";
import { lanternController, LanternPlane, lanternTools } from "./lantern_controller.ts";
import { testDependencies } from "../fakes/test_dependencies.ts";
import { configurationOf, ownFlags } from "../drivers/own_flags.ts";

/** The answer of the health server. */
interface HealthAnswer {
  readonly code: number;
  readonly body: { readonly status: Readonly<Record<string, { readonly healthy: boolean }>> };
}

/** Says when the run drains and disposes of it. */
class RecordedBackend extends FakeBackend {
  constructor({ family }: BackendOptions, readonly calls: string[]) {
    super(family);
  }

  override drain(): Promise<void> {
    this.calls.push("drain Services");
    return super.drain();
  }

  override [Symbol.asyncDispose](): Promise<void> {
    this.calls.push("dispose of Services");
    return super[Symbol.asyncDispose]();
  }
}

/** kube-relay in this process with a made-up controller, on a clock that the test moves, with an API server. */
export class LanternRelay implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly plane = new LanternPlane();
  readonly calls: string[] = [];
  readonly lines: string[] = [];
  readonly healthPort = unusedPort();
  readonly metricsPort = unusedPort();
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  private constructor(readonly folder: string, readonly api: FakeApiServer) {}

  static async start({ isEnabled }: { readonly isEnabled: boolean }): Promise<LanternRelay> {
    const api = await FakeApiServer.start();
    const stage = new LanternRelay(await Deno.makeTempDir(), api);
    for (const object of rawObjects("Node", testNode())) api.store.create(object);
    for (const object of rawObjects("Service", testService("web"))) api.store.create(object);
    api.store.create(lantern("a", { street: "Elm" }));
    api.store.create(lantern("b", { street: "Nowhere" }));
    await stage.#run(isEnabled);
    return stage;
  }

  get socket(): string {
    return `${this.folder}/control.sock`;
  }

  async #run(isEnabled: boolean): Promise<void> {
    const kubeconfig = `${this.folder}/kubeconfig`;
    const user = { token: this.api.rotateToken() };
    await writeKubeconfig(kubeconfig, { server: this.api.url, ca: this.api.ca, user });
    const { clock, lines, calls } = this;
    const environment = { NOTIFY_SOCKET: `${this.folder}/notify`, WATCHDOG_USEC: "20000000" };
    const env = (name: string) => new Map(Object.entries(environment)).get(name);
    const configuration = await configurationOf([
      `--kubeconfig=${kubeconfig}`,
      "--address-mode=none",
      "--conntrack-max-per-core=0",
      `--hostname-override=${THIS_NODE}`,
      ...ownFlags(this.folder, { healthPort: this.healthPort, metricsPort: this.metricsPort }),
    ], { uid: 1000, env });
    const dependencies = testDependencies({
      clock,
      commands: new FakeCommandRunner().on("", {}),
      createTools: (edges) => new ToolsOfRun(edges, lanternTools),
      backends: { userspace: (_, options) => new RecordedBackend(options, calls) },
      process: { uid: 1000, env },
    });
    const sink = (line: string) => void lines.push(line);
    this.#running = runProxy(
      {
        ...dependencies,
        logger: createLogger({ format: "text", verbosity: 0, clock, sink }),
        moreControllers: [lanternController(this.plane, { calls, isEnabled })],
      },
      { ...configuration, mode: "userspace", families: ["IPv4"] },
      this.#stop.signal,
    );
    const serving = () => lines.some((line) => line.includes("phase=serving"));
    await Promise.race([this.#running, this.until("it serves", serving)]);
    await this.until("everything is synced", async () => {
      const { families, controllers = [] } = await requestStatus(this.socket);
      return [...families, ...controllers.flatMap((each) => each.families)]
        .every(({ pending, lastSync }) => lastSync && !pending);
    });
  }

  /** Lets fake time pass until it is so, by default 0.1 s at once. */
  async until(
    what: string,
    isSo: () => boolean | Promise<boolean>,
    { stepMs = 100 }: { readonly stepMs?: number } = {},
  ): Promise<void> {
    await eventually(what, async () => {
      await this.clock.advance(stepMs);
      return await isSo();
    });
  }

  /** The answer of the health server. */
  async health(path: "healthz" | "livez"): Promise<HealthAnswer> {
    const answer = await fetch(`http://127.0.0.1:${this.healthPort}/${path}`);
    return { code: answer.status, body: await answer.json() };
  }

  /** Lines of the metrics page. */
  async metrics(): Promise<readonly string[]> {
    const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`);
    return (await answer.text()).split("\n");
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    let hasEnded = false;
    this.#running.finally(() => hasEnded = true).catch(() => {});
    await this.until("it has ended", () => hasEnded);
    await this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Timers of connections that go down keep no event loop alive.
    const timer = setInterval(() => {}, 1000);
    await this.#end();
    await this.api[Symbol.asyncDispose]();
    clearInterval(timer);
    await Deno.remove(this.folder, { recursive: true });
  }
}
