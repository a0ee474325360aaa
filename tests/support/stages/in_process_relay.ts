/** kube-relay in this process, on a machine of fakes: what the stages with one have in common. */
import type { ProgramDependencies } from "../../../lib/app/run/run_tools.ts";
import { runProxy } from "../../../lib/app/run/run_proxy.ts";
import { effectiveConfiguration } from "../../../lib/config/configuration.ts";
import { createLogger } from "../../../lib/log/create_logger.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { askControl } from "../../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import { writeKubeconfig } from "../builders/kubeconfig_file.ts";
import { configurationOf, ownFlags } from "../drivers/own_flags.ts";
import { unusedPort } from "../drivers/unused_port.ts";
import { eventually } from "../eventually.ts";
import type { FakeApiServer } from "../fakes/fake_api_server.ts";

/** A run. Disposing of it ends it and removes its folder. */
export abstract class InProcessRelay implements AsyncDisposable {
  /** The log. */
  readonly lines: string[] = [];
  readonly healthPort = unusedPort();
  readonly metricsPort = unusedPort();
  readonly folder = Deno.makeTempDirSync();
  protected readonly ending = new AbortController();
  protected running: Promise<void> = Promise.resolve();

  get socket(): string {
    return `${this.folder}/control.sock`;
  }

  status(query: Readonly<Record<string, string>> = {}): Promise<StatusReport> {
    return askControl(this.socket, "/status", query);
  }

  /** Waits; the log is in the error. */
  async until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    await eventually(what, isSo).catch((cause) => {
      throw new Error(`${what}\n${this.lines.join("\n")}`, { cause });
    });
  }

  /** Lines of the metrics page. */
  async metrics(): Promise<readonly string[]> {
    const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`);
    return (await answer.text()).split("\n");
  }

  /** Starts it with these flags, besides those of every stage, until it is up. */
  protected async run(
    dependencies: ProgramDependencies & Pick<Parameters<typeof runProxy>[0], "moreControllers">,
    args: readonly string[],
    { mode, families, env = {}, clock = systemClock, api, isUp }: {
      readonly mode: BackendMode;
      readonly families: readonly IpFamily[];
      readonly env?: Readonly<Record<string, string>>;
      readonly clock?: Clock;
      /** @default {none: it has no cluster} */
      readonly api?: FakeApiServer | undefined;
      readonly isUp: () => boolean | Promise<boolean>;
    },
  ): Promise<void> {
    const kubeconfig = `${this.folder}/kubeconfig`;
    if (api) {
      await writeKubeconfig(kubeconfig, { server: api.url, ca: api.ca, user: { token: "any" } });
    }
    const configuration = await configurationOf([
      ...["--address-mode=none", "--conntrack-max-per-core=0"],
      ...ownFlags(this.folder, this),
      ...(api ? [`--kubeconfig=${kubeconfig}`] : []),
      ...args,
    ], { uid: 1000, env: (name) => env[name] });
    const proxy = effectiveConfiguration(configuration.proxy, mode);
    const sink = (line: string) => void this.lines.push(line);
    this.running = runProxy(
      { ...dependencies, logger: createLogger({ format: "text", verbosity: 2, clock, sink }) },
      { ...configuration, proxy, mode, families },
      this.ending.signal,
    );
    await Promise.race([this.running, this.until("it is up", isUp)]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.ending.abort();
    await this.running;
    await Deno.remove(this.folder, { recursive: true });
  }
}
