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
import type { Network } from "../../os/network.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import { SetIndex } from "../../net/set_index.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { type HostRegistry, hostsAt } from "./host_registry.ts";
import type { ServiceFamily } from "./services.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** A client that cannot reach the API server for so long at the start is cut off, perhaps by leftovers. */
const START_MS = 10_000;
/** Limit for one answer of the API server, and the pause after an attempt that failed. */
const ANSWER_MS = 5_000;
const PAUSE_MS = 1_000;
/** The API server is lost if it does not answer for so long; most restarts of it are shorter. */
const LOST_MS = 15_000;
/** Addresses are given back if the API server does not answer without them for so long. */
const TRIAL_MS = 60_000;
/** Time until they are suspected again in the same outage; it doubles. */
const NEXT_TRIAL_MS = 600_000;
/** A sync that gives addresses back is not waited for longer. */
const SYNC_MS = 10_000;
/** Time until a tool that failed is tried again. */
const RETRY_MS = 10_000;

/** The name of the machines behind addresses that were taken back. */
const LOST = "a machine on the path to the API server";

interface HostGuardOptions {
  readonly registry: HostRegistry;
  readonly families: readonly Pick<ServiceFamily, "disown" | "hasSynced">[];
  /** The client of the API server; `undefined` = not opened yet, or there is none. */
  readonly client: () => Pick<KubeClient, "get"> | undefined;
  /** Whether leftovers of an earlier run serve nothing until the first sync. */
  readonly leftoversAreIdle: boolean;
}

/** Guards the addresses of one run. */
export class HostGuard {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #network: Pick<Network, "interfaceAddresses">;
  readonly #options: HostGuardOptions;
  /** The external addresses of each ServicePort that has some. */
  readonly #addresses = new Map<ServicePortKey, readonly IpAddress[]>();
  readonly #users = new SetIndex<IpAddress, ServicePortKey>();
  readonly #added = new Set<IpAddress>();
  /** Addresses of the machine at the start. With them the API server was reached before the first sync. */
  #present = new Set<IpAddress>();
  readonly #synced = new Set<IpFamily>();
  /** Addresses that were taken back. */
  readonly #withheld = new Set<IpAddress>();
  readonly #wakeUp = new WakeUp();

  constructor(
    { clock, logger, network }: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly network: Pick<Network, "interfaceAddresses">;
    },
    options: HostGuardOptions,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#network = network;
    this.#options = options;
  }

  /** Called when a machine became known. */
  hostChanged(): void {
    this.#wakeUp.call();
  }

  synced(family: IpFamily, plan: ProxyPlan, { removed, upserted }: PlanChanges): void {
    for (const key of removed.keys()) this.#replace(key, []);
    const own = new Set(plan.shared.interfaceAddresses);
    const known = this.#synced.has(family) ? own : own.union(this.#present);
    this.#synced.add(family);
    for (const key of upserted) {
      const { externalIps = [], loadBalancerVips = [] } = plan.services.get(key) ?? {};
      const now = [...externalIps, ...loadBalancerVips].filter((each) => !own.has(each));
      for (const address of this.#replace(key, now)) {
        if (!known.has(address)) this.#added.add(address);
      }
    }
    if (this.#added.size > 0) this.#wakeUp.call();
  }

  /** Takes the addresses of a ServicePort. Returns those that no ServicePort had before. */
  #replace(key: ServicePortKey, now: readonly IpAddress[]): readonly IpAddress[] {
    const before = this.#addresses.get(key) ?? [];
    const added = now.filter((address) => !this.#users.has(address));
    for (const address of before) this.#users.delete(address, key);
    for (const address of now) this.#users.add(address, key);
    if (now.length > 0) this.#addresses.set(key, now);
    else this.#addresses.delete(key);
    return added;
  }

  /** Guards until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      this.#present = new Set(this.#network.interfaceAddresses().map(({ address }) => address));
    } catch (error) {
      this.#logger.verbose(1, "Cannot read the addresses of this machine", { error });
    }
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
    const { client, families } = this.#options;
    if (client() === undefined || families.every(({ hasSynced }) => hasSynced)) return;
    if (await this.#answersWithin(LOST_MS, signal)) return;
    await this.#disown(() => true, "the API server cannot be reached");
  }

  async #guardAdded(signal: AbortSignal): Promise<void> {
    for (;;) {
      const isKnown = (address: IpAddress) => this.#options.registry.get(address) !== undefined;
      const isDone = await this.#disown(isKnown, "they belong to other machines");
      const added = [...this.#added];
      this.#added.clear();
      if (added.length > 0 && this.#options.client() !== undefined) {
        await this.#examine(added, { isRepeated: false, signal });
      }
      await this.#wakeUp.wait(signal, isDone ? undefined : { clock: this.#clock, ms: RETRY_MS });
      signal.throwIfAborted();
    }
  }

  /** Returns whether no tool failed. */
  async #disown(isForeign: (address: IpAddress) => boolean, reason: string): Promise<boolean> {
    let isDone = true;
    for (const family of this.#options.families) {
      if (family.hasSynced) continue;
      try {
        const addresses = await family.disown(isForeign);
        if (addresses.length === 0) continue;
        for (const address of addresses) this.#present.delete(address);
        this.#logger.warn("Gave up addresses of an earlier run", { addresses, reason });
      } catch (error) {
        isDone = false;
        this.#logger.warn("Cannot give up addresses of an earlier run", { reason, error });
      }
    }
    return isDone;
  }

  /**
   * Takes addresses back if the API server is lost. That may be an outage of which they know nothing, so
   * they are given back, in halves: only an address that stands for a second loss stays withheld.
   */
  async #examine(
    addresses: readonly IpAddress[],
    { isRepeated, signal }: { readonly isRepeated: boolean; readonly signal: AbortSignal },
  ): Promise<void> {
    if (await this.#answersWithin(LOST_MS, signal)) return;
    const suspects = new Set(addresses);
    for (let pauseMs = NEXT_TRIAL_MS;; pauseMs *= 2) {
      this.#logger.warn("Lost the API server after addresses were added; taking them back", {
        addresses,
      });
      if (await this.#answersWithin(TRIAL_MS, signal, suspects)) break;
      this.#release(suspects);
      this.#logger.info(
        "The API server is lost also without the addresses; they are served again",
        {
          addresses,
        },
      );
      if (await this.#answersWithin(pauseMs, signal)) return;
    }
    if (isRepeated && suspects.size === 1) {
      this.#logger.error("Addresses of Services had cut this node off from the API server", {
        addresses: [...suspects],
        cure: "remove them from the Services, and restrict external IPs by --external-ip-ranges",
      });
      return;
    }
    const all = [...suspects];
    const middle = Math.ceil(all.length / 2);
    for (const half of [all.slice(0, middle), all.slice(middle)]) {
      if (half.length === 0) continue;
      this.#release(half);
      await this.#whenServed(half, signal);
      await this.#examine(half, { isRepeated: true, signal });
    }
  }

  #release(addresses: Iterable<IpAddress>): void {
    for (const address of addresses) this.#withheld.delete(address);
    this.#publish();
  }

  #publish(): void {
    this.#options.registry.set("lost", hostsAt(this.#withheld, { owner: LOST }));
  }

  /** Resolves when a sync has given addresses back, or soon if no Service asks for them any more. */
  async #whenServed(addresses: readonly IpAddress[], signal: AbortSignal): Promise<void> {
    const end = this.#clock.now() + SYNC_MS;
    while (!addresses.every((each) => this.#added.has(each)) && this.#clock.now() < end) {
      await this.#clock.sleep(PAUSE_MS, signal);
    }
    for (const address of addresses) this.#added.delete(address);
  }

  /**
   * Whether the API server answers anything in this time, without the suspects if there are any, among
   * them each address that is added meanwhile.
   */
  async #answersWithin(
    ms: number,
    signal: AbortSignal,
    suspects?: Set<IpAddress>,
  ): Promise<boolean> {
    for (const end = this.#clock.now() + ms;;) {
      if (suspects) {
        for (const address of this.#added) suspects.add(address);
        this.#added.clear();
        for (const address of suspects) this.#withheld.add(address);
        this.#publish();
      }
      if (await this.#answers(signal)) return true;
      if (this.#clock.now() >= end) return false;
      await this.#clock.sleep(PAUSE_MS, signal);
    }
  }

  async #answers(signal: AbortSignal): Promise<boolean> {
    const ending = new AbortController();
    const timer = this.#clock.setTimer(ANSWER_MS, () => ending.abort());
    try {
      await this.#options.client()!.get("/version", AbortSignal.any([signal, ending.signal]));
      return true;
    } catch (error) {
      signal.throwIfAborted();
      return error instanceof ApiError;
    } finally {
      timer.cancel();
    }
  }
}
