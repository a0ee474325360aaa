/**
 * Keeps Service addresses that modes make local from cutting this node off from other machines. Known
 * machines are withheld by the plan; this guard gives up addresses that an earlier run left, and takes
 * an address back if the API server is lost right after it was added.
 *
 * @module
 */
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { type HostRegistry, hostsAt } from "./host_registry.ts";
import type { SyncObserver } from "./sync_observer.ts";

/** A client that cannot reach the API server for so long at the start is cut off, perhaps by leftovers. */
const START_MS = 10_000;
/** Limit for the answer of the API server. */
const ANSWER_MS = 5_000;
/** Attempts to reach the API server before it counts as lost, and the time between two of them. */
const ATTEMPTS = 3;
const PAUSE_MS = 1_000;
/** Addresses are given back if the API server does not answer without them for so long. */
const TRIAL_MS = 60_000;

/** The name of the machines behind addresses that were taken back. */
const LOST = "a machine on the path to the API server";

/** The parts of one family that the guard needs. */
interface GuardedFamily {
  /** Whether a plan was applied, so that it decides about every address. */
  readonly hasSynced: boolean;
  /** See {@linkcode DataPlane.disown}. */
  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]>;
}

interface HostGuardOptions {
  readonly registry: HostRegistry;
  readonly families: readonly GuardedFamily[];
  /** The client of the API server; `undefined` = not opened yet, or there is none. */
  readonly client: () => Pick<KubeClient, "get"> | undefined;
  /** Whether leftovers of an earlier run serve nothing until the first sync. */
  readonly leftoversAreIdle: boolean;
}

/** Guards the addresses of one run. */
export class HostGuard implements SyncObserver {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: HostGuardOptions;
  /** The external addresses of each ServicePort that has some. */
  readonly #addresses = new Map<ServicePortKey, readonly IpAddress[]>();
  readonly #added = new Set<IpAddress>();
  #wake = Promise.withResolvers<void>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    options: HostGuardOptions,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#options = options;
  }

  /** Called when a machine became known. */
  hostChanged(): void {
    this.#wake.resolve();
  }

  synced(_family: IpFamily, plan: ProxyPlan, { removed, upserted }: PlanChanges): void {
    for (const key of removed.keys()) this.#addresses.delete(key);
    const own = new Set(plan.shared.interfaceAddresses);
    for (const key of upserted) {
      const { externalIps = [], loadBalancerVips = [] } = plan.services.get(key) ?? {};
      if (externalIps.length + loadBalancerVips.length === 0) {
        this.#addresses.delete(key);
        continue;
      }
      const before = this.#addresses.get(key) ?? [];
      const now = [...externalIps, ...loadBalancerVips].filter((each) => !own.has(each));
      this.#addresses.set(key, now);
      for (const address of now) if (!before.includes(address)) this.#added.add(address);
    }
    if (this.#added.size > 0) this.#wake.resolve();
  }

  /** Guards until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await Promise.all([this.#guardAdded(signal), this.#guardStart(signal)]);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Gives up all leftovers if the API server cannot be reached at the start. */
  async #guardStart(signal: AbortSignal): Promise<void> {
    if (!this.#options.leftoversAreIdle) return;
    await this.#clock.sleep(START_MS, signal);
    const client = this.#options.client();
    if (client === undefined || this.#options.families.every(({ hasSynced }) => hasSynced)) return;
    if (await this.#isReachable(client, signal)) return;
    await this.#disown(() => true, "the API server cannot be reached");
  }

  async #guardAdded(signal: AbortSignal): Promise<void> {
    const aborted = whenAborted(signal);
    for (;;) {
      const isKnown = (address: IpAddress) => this.#options.registry.get(address) !== undefined;
      await this.#disown(isKnown, "they belong to other machines");
      const added = [...this.#added];
      this.#added.clear();
      if (added.length > 0) await this.#check(added, signal);
      await Promise.race([this.#wake.promise, aborted]);
      signal.throwIfAborted();
      this.#wake = Promise.withResolvers();
    }
  }

  async #disown(isForeign: (address: IpAddress) => boolean, reason: string): Promise<void> {
    for (const family of this.#options.families) {
      if (family.hasSynced) continue;
      const addresses = await family.disown(isForeign);
      if (addresses.length === 0) continue;
      this.#logger.warn("Gave up addresses of an earlier run", { addresses, reason });
    }
  }

  async #check(added: readonly IpAddress[], signal: AbortSignal): Promise<void> {
    const client = this.#options.client();
    if (client === undefined) return;
    if (await this.#isReachable(client, signal)) return;
    const { registry } = this.#options;
    this.#logger.warn("Lost the API server after addresses were added; taking them back", {
      addresses: added,
    });
    registry.set("lost", hostsAt(added, { owner: LOST }));
    const end = this.#clock.now() + TRIAL_MS;
    while (this.#clock.now() < end) {
      if (await this.#isReachable(client, signal)) {
        this.#logger.error("Addresses of Services had cut this node off from the API server", {
          addresses: added,
          cure: "remove them from the Services, and restrict external IPs by --external-ip-ranges",
        });
        return;
      }
    }
    registry.set("lost", new Map());
    this.#logger.info("The API server is lost also without the addresses; they are served again", {
      addresses: added,
    });
  }

  /** Whether the API server answers anything. */
  async #isReachable(client: Pick<KubeClient, "get">, signal: AbortSignal): Promise<boolean> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const ending = new AbortController();
      const timer = this.#clock.setTimer(ANSWER_MS, () => ending.abort());
      try {
        await client.get("/version", AbortSignal.any([signal, ending.signal]));
        return true;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof ApiError) return true;
      } finally {
        timer.cancel();
      }
      if (attempt < ATTEMPTS) await this.#clock.sleep(PAUSE_MS, signal);
    }
    return false;
  }
}
