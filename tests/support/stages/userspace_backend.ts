/** A userspace backend on loopback, driven plan by plan. */
import {
  UserspaceBackend,
  type UserspaceBackendOptions,
} from "../../../backends/userspace/backend.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import { type Network, systemNetwork } from "../../../lib/os/network.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { THREAD_MEMORY } from "../../../lib/os/shared_memory.ts";
import { type SpawnWorker, type WorkerCarrier, WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServiceMode } from "../../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { AddressStore } from "../../../backends/userspace/addresses/address_store.ts";
import {
  type AddressMode,
  ServiceAddresses,
} from "../../../backends/userspace/addresses/addresses.ts";
import { engineUnderTest, type TurnedEngine } from "../drivers/turned_engine.ts";
import { createMemoryStore } from "../drivers/listed_addresses.ts";
import { FakeHost } from "../fakes/fake_host.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import {
  misleadingNetwork,
  type NetworkTrick,
  spawnMisledWorker,
} from "../fakes/misleading_network.ts";
import { testPlanChanges, testProxyPlan } from "../builders/service_plans.ts";

/** The parts of the environment that a test provides itself. */
export interface TestBackendOptions extends Partial<UserspaceBackendOptions> {
  readonly clock?: Clock;
  /** Of this thread. @default {the machine's network, with the trick} */
  readonly network?: Network;
  /** What the network of all threads does. */
  readonly trick?: NetworkTrick;
  readonly openFiles?: OpenFiles;
  readonly traffic?: FamilyTraffic;
  /** @default {one that has no address of 127.0.0.0/8 but the first} */
  readonly host?: FakeHost;
  readonly addressMode?: AddressMode;
  readonly store?: AddressStore;
  /** @default {one that throws} */
  readonly comparison?: Pick<ServiceMode, "compare" | "repair">;
  /** Threads that forward; 0 = this one. @default {environment variable USERSPACE_WORKERS, or 0} */
  readonly workers?: number;
  readonly spawn?: SpawnWorker;
}

/** Starts a worker as kube-relay does. */
export function spawnWorker(name: string): Worker {
  const program = new URL("../../../backends/userspace_worker.ts", import.meta.url);
  return new Worker(program, { type: "module", name });
}

/** Workers that are threads. */
export function threadCarrier(clock: Clock, spawn: SpawnWorker): WorkerCarrier {
  return {
    ...{ kind: "threads", spawn, memory: THREAD_MEMORY },
    now: () => clock.now(),
  };
}

const COMPARISON = { compare: unasked, repair: unasked };

function unasked(): never {
  throw new Error("Cannot compare: the test has no machine");
}

/** A backend, and the plan that it was synced to last. */
export class TestUserspaceBackend implements AsyncDisposable {
  /** The machine on which addresses become local. Sockets are real. */
  readonly host: FakeHost;
  readonly addresses: ServiceAddresses;
  readonly logger = new MemoryLogger();
  /** Changes of health, as `address:port state: reason`. */
  readonly healthChanges: string[] = [];
  readonly backend: UserspaceBackend;
  /** `undefined` = this thread forwards. */
  readonly pool: WorkerPool | undefined;
  #started: Promise<void> | undefined;
  readonly #sockets: Int32Array | undefined;
  readonly #turned: TurnedEngine | undefined;
  #plan: ProxyPlan | undefined;
  #shared: SharedPlan | undefined;
  #retry: readonly ServicePortKey[] = [];

  constructor(
    {
      clock = systemClock,
      trick,
      network = trick ? misleadingNetwork(trick) : systemNetwork,
      openFiles = new OpenFiles(),
      traffic,
      host = Object.assign(new FakeHost(), { hasLoopbackRange: false }),
      addressMode,
      store = createMemoryStore(),
      comparison = COMPARISON,
      workers = Number(Deno.env.get("USERSPACE_WORKERS") ?? 0),
      spawn = trick ? (name) => spawnMisledWorker(name, trick) : spawnWorker,
      ...options
    }: TestBackendOptions = {},
  ) {
    const { logger } = this;
    const { family = "IPv4" } = options;
    this.host = host;
    const addresses = this.addresses = new ServiceAddresses(
      { ...{ clock, store }, ...host, logger: new MemoryLogger() },
      family,
      addressMode,
    );
    this.pool = workers > 0
      ? new WorkerPool({ clock, logger }, threadCarrier(clock, spawn), { count: workers })
      : undefined;
    const shared = this.pool && openFiles.share(workers);
    this.#sockets = shared && new Int32Array(shared.counts);
    const workerParts = this.pool && shared &&
      { kind: "workers" as const, pool: this.pool, openFiles: shared };
    // A test that misleads the network has one of its own.
    this.#turned = network === systemNetwork && !this.pool
      ? engineUnderTest(options.unixSocketFolders)
      : undefined;
    this.backend = new UserspaceBackend(
      {
        ...(this.#turned && { engine: this.#turned.engine }),
        ...{ clock, network, logger, addresses, comparison },
        openFiles,
        ...(workerParts && { workers: workerParts }),
        onHealth: (changes) => {
          for (const { endpoint, state, reason } of changes) {
            this.healthChanges.push(`${endpoint} ${state}: ${reason ?? "-"}`);
          }
        },
        ...(traffic && { traffic }),
      },
      { family: "IPv4", udpTimeoutMs: 10_000, ...options },
    );
  }

  /**
   * Syncs exactly these Services. As the real caller does, it passes the changes since the last
   * sync, and the quarantine.
   */
  async sync(
    services: readonly ServicePlan[],
    { isPartial, ...shared }: Partial<SharedPlan> & Pick<PlanChanges, "isPartial"> = {},
  ): Promise<SyncReport> {
    const isSaid = Object.keys(shared).length > 0;
    const fresh = testProxyPlan(services, isSaid ? { shared } : {});
    // The shared part keeps its identity while nothing is said about it.
    this.#shared = isSaid || !this.#shared ? fresh.shared : this.#shared;
    const plan = { ...fresh, shared: this.#shared };
    const changes = testPlanChanges(plan, this.#plan);
    const again = this.#retry.filter((key) => plan.services.has(key));
    const upserted = new Set([...changes.upserted, ...again]);
    await (this.#started ??= this.backend.start());
    const report = await this.backend.sync(plan, {
      ...changes,
      upserted,
      ...(isPartial && { isPartial }),
    });
    this.#plan = plan;
    this.#retry = report.quarantined.map(({ key }) => key);
    return report;
  }

  /** Returns the number of TCP connections in each worker. */
  connectionsOfWorkers(): readonly number[] {
    const { count = 0 } = this.pool ?? {};
    return [...this.#sockets?.subarray(2, 2 + count) ?? []].map((sockets) => sockets / 2);
  }

  /** Returns the counters of all threads. */
  async counters(): Promise<UserspaceBackend["connections"]["counters"]> {
    await this.backend.connections.refresh();
    return this.backend.connections.counters;
  }

  /** Returns the addresses on which a ServicePort is served, as `address:port state`. */
  async served(plan: ServicePlan): Promise<readonly string[]> {
    const { services: [found] } = await this.backend.inspect([plan.key]);
    return found?.addresses.map(({ role, address, port, state }) =>
      `${role} ${address}:${port} ${state}`
    ) ?? [];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    this.pool?.[Symbol.dispose]();
    await this.#turned?.[Symbol.asyncDispose]();
  }
}
