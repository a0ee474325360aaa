/**
 * The health and metrics servers as kube-relay starts them, on loopback, with a clock that the test
 * moves.
 */
import { startProxyServers } from "../../../lib/app/serving/proxy_servers.ts";
import { TaskGroup } from "../../../lib/engine/task_group.ts";
import type { KubeProxyConfiguration } from "../../../lib/config/configuration.ts";
import { ProxyHealth } from "../../../lib/health/proxy_health.ts";
import type { KubeEvent } from "../../../lib/kube/event.ts";
import { ProxyMetrics } from "../../../lib/metrics/proxy_metrics.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { THIS_NODE } from "../builders/address_plan.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { unusedPort } from "../drivers/unused_port.ts";
import { configurationOf } from "../drivers/own_flags.ts";

/** The options of the servers. */
export interface ProxyServersStageOptions {
  /** Further flags of the command line. */
  readonly args?: readonly string[];
  /** @default {"iptables"} */
  readonly mode?: BackendMode;
  /** Twice the sync period. @default {10000} */
  readonly timeoutMs?: number;
}

/** Running servers, with their inputs and outputs. */
export interface ProxyServersStage extends AsyncDisposable {
  readonly clock: FakeClock;
  /** The configuration in force; a test may replace it, as a change of the file does. */
  readonly current: { proxy: KubeProxyConfiguration };
  readonly health: ProxyHealth;
  readonly events: readonly KubeEvent[];
  readonly verbosities: readonly number[];
  readonly healthzPort: number;
  readonly metricsPort: number;
  /** The phase that a body names while the process starts. */
  phase: string | undefined;
  /** Resolves when the servers have ended; rejects with what ended them. */
  ended(): Promise<void>;
}

/** Starts both servers. */
export async function startProxyServersStage(
  { args = [], mode = "iptables", timeoutMs = 10_000 }: ProxyServersStageOptions = {},
): Promise<ProxyServersStage> {
  const [healthzPort, metricsPort] = [unusedPort(), unusedPort()];
  const { flags, ...configuration } = await configurationOf([
    "--kubeconfig=/etc/kubernetes/kube-proxy.conf",
    `--healthz-bind-address=127.0.0.1:${healthzPort}`,
    `--metrics-bind-address=127.0.0.1:${metricsPort}`,
    ...args,
  ]);
  const [clock, events, verbosities]: [FakeClock, KubeEvent[], number[]] = [
    new FakeClock(),
    [],
    [],
  ];
  const health = new ProxyHealth({ clock }, { timeoutMs });
  const tasks = new TaskGroup(new AbortController().signal);
  const current = { proxy: configuration.proxy };
  const stage: ProxyServersStage = {
    clock,
    current,
    health,
    events,
    verbosities,
    healthzPort,
    metricsPort,
    phase: undefined,
    ended: () => tasks.ended(),
    async [Symbol.asyncDispose]() {
      tasks.stop();
      await tasks.ended().catch(() => {});
    },
  };
  const logger = Object.assign(new MemoryLogger(), {
    setVerbosity: (level: number) => void verbosities.push(level),
  });
  startProxyServers(
    {
      ...{ clock, logger, network: systemNetwork },
      openFiles: new OpenFiles(),
      events: { record: (event) => events.push(event) },
    },
    tasks,
    {
      configuration: { ...configuration, mode, flags },
      current,
      nodeName: THIS_NODE,
      health,
      metrics: new ProxyMetrics({ version: "0.0.0", mode, clock }),
      manager: {
        get phase() {
          return stage.phase ?? "serving";
        },
      },
      gather: () => Promise.resolve(),
    },
  );
  return stage;
}
