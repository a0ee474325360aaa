/**
 * The health check node ports of Services with external traffic policy Local: one HTTP server for
 * each, through which load balancers check whether this node has endpoints.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { IP_FAMILIES, type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import type { Clock, Timer } from "../os/clock.ts";
import type { HttpHandler } from "../os/http_connection.ts";
import type { HttpListener } from "../os/http_server.ts";
import { type AddressHandover, HANDOVER_RETRY_MS } from "../os/http_server.ts";
import type { SocketAddress } from "../os/network.ts";
import type { Wildcard } from "../os/wildcard.ts";
import type { PlanChanges, ProxyPlan } from "../proxy/proxy_plan.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import {
  type NamespacedName,
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../proxy/service_port_name.ts";

/** Waits between attempts to open ports, in milliseconds; each sync also tries. */
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 60_000;
/** Most Services per attempt in a handover: the other program's ports become free all at once. */
const TRIED_IN_HANDOVER = 16;
/** Opening a socket takes 0.1 ms. */
const SOCKETS_PER_TURN = 32;

/** Opens one socket of a Service. Throws if that fails. */
export type ListenForService = (
  service: ServiceKey,
  address: SocketAddress,
  handler: HttpHandler,
) => HttpListener;

interface ServiceHealthDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly listen: ListenForService;
  /** Returns a number from 0 to 1, like `Math.random`. */
  readonly random: () => number;
}

/** Inputs of the servers besides the plans. */
interface ServiceHealthOptions {
  /** Whether node ports of the family are on every address of the node. */
  readonly everywhere: (family: IpFamily) => boolean;
  /** Called before each use of the addresses, because IPv6 may come up later. */
  readonly wildcard: () => Wildcard;
  /** Whether the proxy of every family is healthy. */
  readonly proxyHealthy: () => boolean;
  /** While it is pending, a port in use is not a failure. @default {none} */
  readonly handover?: AddressHandover;
  /** Called for each failed attempt, for the event on the Service. */
  readonly onListenFailure: (
    failure: { readonly service: NamespacedName; readonly port: Port; readonly error: Error },
  ) => void;
}

/** A Service with a health check node port. Both families share it and its port. */
interface CheckedService {
  readonly name: NamespacedName;
  port: Port;
  /** Distinct addresses of ready endpoints on this node, for each family of the Service. */
  readonly localEndpoints: Map<IpFamily, number>;
  /** The plans of its ports, from which the endpoints are counted again. */
  readonly plans: Map<IpFamily, Map<ServicePortKey, ServicePlan>>;
}

/**
 * Opens and closes the ports as plans change; an observer of syncs
 * (`lib/app/service/service_controller.ts`). The work runs outside of syncs. A port that cannot be
 * opened does not delay others.
 */
export class ServiceHealthServer {
  readonly #dependencies: ServiceHealthDependencies;
  readonly #options: ServiceHealthOptions;
  readonly #services = new Map<ServiceKey, CheckedService>();
  readonly #addresses = new Map<IpFamily, readonly IpAddress[]>();
  /** The sockets of each Service. */
  readonly #open = new Map<
    ServiceKey,
    { readonly port: Port; readonly listeners: Map<string, HttpListener> }
  >();
  /** Services to check. */
  readonly #dirty = new Set<ServiceKey>();
  /** Services without all sockets, and their logged problems. */
  readonly #failed = new Map<ServiceKey, string>();
  #wildcard: Wildcard | undefined;
  #working: Promise<void> | undefined;
  #retry: Timer | undefined;
  #retryMs = FIRST_RETRY_MS;
  /** Whether a port that failed before could be opened in the last pass. */
  #gotOne = false;
  #stopped = false;

  constructor(dependencies: ServiceHealthDependencies, options: ServiceHealthOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
  }

  /** Takes the changes of a sync. Costs what changed, and what failed before. */
  synced(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): void {
    for (const service of this.#update(family, plan, changes)) this.#dirty.add(service);
    if (changes.shared) {
      this.#addresses.set(family, plan.shared.nodePortAddresses);
      this.#wildcard = undefined;
      for (const service of this.#services.keys()) this.#dirty.add(service);
    }
    this.#tryFailed();
  }

  /**
   * Counts the endpoints on this node of the Services that changed, and returns these. The port is a field
   * of the Service, not of a family: both families receive a change one after the other, and the last one
   * is right.
   */
  #update(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): ReadonlySet<ServiceKey> {
    const touched = new Set<ServiceKey>();
    const drop = (service: ServiceKey, key: ServicePortKey) => {
      if (this.#services.get(service)?.plans.get(family)?.delete(key)) touched.add(service);
    };
    for (const { name, key } of changes.removed.values()) drop(serviceKey(name), key);
    for (const key of changes.upserted) {
      const found = plan.services.get(key);
      // The first sync has every ServicePort: those without a check need no key.
      if (!found || this.#services.size === 0 && found.healthCheckNodePort === undefined) continue;
      const { healthCheckNodePort: port, name: { namespace, name } } = found;
      const service = serviceKey(found.name);
      if (port === undefined) {
        drop(service, key);
        continue;
      }
      const checked = this.#services.getOrInsertComputed(service, () => ({
        ...{ name: { namespace, name }, port },
        ...{ localEndpoints: new Map(), plans: new Map() },
      }));
      checked.port = port;
      checked.plans.getOrInsertComputed(family, () => new Map()).set(key, found);
      touched.add(service);
    }
    for (const service of touched) {
      const { plans, localEndpoints } = this.#services.get(service)!;
      const own = plans.get(family)!;
      localEndpoints.set(family, countLocalReady(own.values()));
      if (own.size > 0) continue;
      plans.delete(family);
      localEndpoints.delete(family);
      if (plans.size === 0) this.#services.delete(service);
    }
    return touched;
  }

  /** Resolves when there is nothing to open or close. */
  async settled(): Promise<void> {
    while (this.#working) await this.#working;
  }

  /** Closes everything. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#retry?.cancel();
    await this.settled();
    for (const service of [...this.#open.keys()]) await this.#close(service);
  }

  #tryFailed(most = Infinity): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    for (const service of this.#failed.keys().take(most)) this.#dirty.add(service);
    this.#work();
  }

  #work(): void {
    if (this.#stopped || this.#working || this.#dirty.size === 0) return;
    this.#working = this.#reconcile()
      .catch((error) => this.#dependencies.logger.error("Cannot close a health check", { error }))
      .finally(() => {
        this.#working = undefined;
        const gotOne = this.#gotOne;
        this.#gotOne = false;
        if (gotOne && this.#isHandover) this.#tryFailed();
        else this.#work();
        this.#planRetry();
      });
  }

  /** Closes first, because a port may move from one Service to another. */
  async #reconcile(): Promise<void> {
    const { clock } = this.#dependencies;
    const services = [...this.#dirty];
    this.#dirty.clear();
    for (const service of services) await this.#closeSuperfluous(service);
    let opened = 0;
    for (const service of services) {
      if (this.#stopped) return;
      opened += await this.#openMissing(service);
      if (opened < SOCKETS_PER_TURN) continue;
      opened = 0;
      await clock.yieldToEventLoop();
    }
  }

  async #closeSuperfluous(service: ServiceKey): Promise<void> {
    const checked = this.#services.get(service);
    const open = this.#open.get(service);
    if (checked === undefined) this.#failed.delete(service);
    if (open === undefined) return;
    if (checked === undefined || open.port !== checked.port) return await this.#close(service);
    const wanted = this.#hostnames(checked);
    for (const [hostname, listener] of open.listeners) {
      if (wanted.has(hostname)) continue;
      open.listeners.delete(hostname);
      await listener.close();
    }
  }

  /** Returns how many sockets it opened. */
  async #openMissing(service: ServiceKey): Promise<number> {
    const checked = this.#services.get(service);
    if (checked === undefined) return 0;
    const open = this.#open.get(service) ?? { port: checked.port, listeners: new Map() };
    this.#open.set(service, open);
    let opened = 0;
    let gone: Error | undefined;
    for (const hostname of this.#hostnames(checked)) {
      if (open.listeners.has(hostname)) continue;
      try {
        const listener = this.#listen(service, { hostname, port: checked.port });
        open.listeners.set(hostname, listener);
        opened++;
      } catch (error) {
        // The address was just removed from the machine; the next list of addresses will not
        // contain it.
        if (error instanceof Deno.errors.AddrNotAvailable) gone = error;
        else {
          // Half a health check would give load balancers different answers (upstream).
          await this.#close(service);
          this.#reportFailure(service, checked, error as Error);
          return 0;
        }
      }
    }
    if (gone === undefined) this.#recovered(service);
    else this.#reportFailure(service, checked, gone);
    return opened;
  }

  #listen(service: ServiceKey, address: { hostname: string; port: Port }): HttpListener {
    return this.#dependencies.listen(service, address, (_, peer) => {
      const checked = this.#services.get(service);
      if (checked === undefined) return answerServiceHealth(undefined);
      const family = peer === undefined ? "IPv4" : ipFamilyOf(peer);
      return answerServiceHealth({
        service: checked.name,
        localEndpoints: checked.localEndpoints.get(family) ?? 0,
        proxyHealthy: this.#options.proxyHealthy(),
      });
    });
  }

  #reportFailure(service: ServiceKey, { name, port }: CheckedService, error: Error): void {
    const { logger } = this.#dependencies;
    const waits = this.#isHandover && error instanceof Deno.errors.AddrInUse;
    const before = this.#failed.get(service);
    const logged = waits ? "" : error.message;
    if (!waits) this.#options.onListenFailure({ service: name, port, error });
    if (waits && before === undefined) {
      logger.info("Waiting for the health check port of a Service", { object: service, port });
    } else if (before !== logged && !waits) {
      logger.error(
        "Cannot listen for the health checks of a Service; load balancers skip this node until a later try succeeds",
        { object: service, port, error },
      );
    }
    // Visits all of them: in a handover only the first ones are tried.
    this.#failed.delete(service);
    this.#failed.set(service, logged);
  }

  get #isHandover(): boolean {
    return this.#options.handover?.pending === true;
  }

  #recovered(service: ServiceKey): void {
    if (!this.#failed.delete(service)) return;
    this.#gotOne = true;
    this.#dependencies.logger.info("Health checks of a Service are answered", { object: service });
  }

  async #close(service: ServiceKey): Promise<void> {
    const open = this.#open.get(service);
    this.#open.delete(service);
    await Promise.all([...open?.listeners.values() ?? []].map((listener) => listener.close()));
  }

  #planRetry(): void {
    if (this.#failed.size === 0) this.#retryMs = FIRST_RETRY_MS;
    if (this.#failed.size === 0 || this.#stopped || this.#working || this.#retry) return;
    const { clock, random } = this.#dependencies;
    if (this.#isHandover) {
      this.#retry = clock.setTimer(HANDOVER_RETRY_MS, () => this.#tryFailed(TRIED_IN_HANDOVER));
      return;
    }
    this.#retry = clock.setTimer(this.#retryMs * (1 + random() / 10), () => this.#tryFailed());
    this.#retryMs = Math.min(LAST_RETRY_MS, this.#retryMs * 2);
  }

  #hostnames({ localEndpoints }: CheckedService): ReadonlySet<string> {
    return healthCheckHostnames(new Set(localEndpoints.keys()), {
      everywhere: IP_FAMILIES.filter((family) => this.#options.everywhere(family)),
      addresses: this.#addresses,
      wildcard: this.#wildcard ??= this.#options.wildcard(),
    });
  }
}

/** A pod behind three ports counts once; a terminating pod is not ready. */
function countLocalReady(plans: Iterable<ServicePlan>): number {
  const addresses = new Set<IpAddress>();
  for (const { endpoints } of plans) {
    for (const { address, isLocal, ready } of endpoints) {
      if (isLocal && ready) addresses.add(address);
    }
  }
  return addresses.size;
}

const WILDCARDS: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/**
 * Returns the addresses on which a Service in these families listens for health checks, each once.
 * `everywhere` has the families whose node ports are on every address, including future ones.
 *
 * Upstream has one socket on `0.0.0.0` and one on `[::]` for IPv6 alone. Deno's `[::]` covers IPv4
 * too on most machines; it then serves both, and the client's address shows its family. If only
 * IPv6 has to be served everywhere, `[::]` would also take the IPv4 addresses, so each IPv6 address
 * gets its own socket.
 */
export function healthCheckHostnames(
  has: ReadonlySet<IpFamily>,
  { everywhere, addresses, wildcard }: {
    readonly everywhere: readonly IpFamily[];
    readonly addresses: ReadonlyMap<IpFamily, readonly IpAddress[]>;
    readonly wildcard: Wildcard;
  },
): ReadonlySet<string> {
  if (wildcard === "both" && everywhere.length === IP_FAMILIES.length) {
    return new Set(has.size > 0 ? [WILDCARDS.IPv6] : []);
  }
  const hostnames = IP_FAMILIES.filter((family) => has.has(family)).flatMap<string>((family) => {
    const mayBeWild = family === "IPv4" || wildcard === "ipv6-only";
    const isWild = mayBeWild && everywhere.includes(family);
    return isWild ? [WILDCARDS[family]] : addresses.get(family) ?? [];
  });
  return new Set(hostnames);
}

/**
 * Returns the response of a health check node port (KEP-3836; the weight header is from
 * kubernetes/kubernetes#118999): 200 if this node can serve the Service, else 503. The body is
 * indented by tabs and has no line end, as upstream's. `undefined` is a Service that was just
 * deleted: 200 without a body.
 */
export function answerServiceHealth(
  health: {
    readonly service: NamespacedName;
    /** Ready endpoints on this node. */
    readonly localEndpoints: number;
    /** Whether the proxies of both families are healthy. */
    readonly proxyHealthy: boolean;
  } | undefined,
): Response {
  if (health === undefined) return new Response(null);
  const { service: { namespace, name }, localEndpoints, proxyHealthy } = health;
  const body = {
    service: { namespace, name },
    localEndpoints,
    serviceProxyHealthy: proxyHealthy,
  };
  return new Response(JSON.stringify(body, null, "\t"), {
    status: localEndpoints > 0 && proxyHealthy ? 200 : 503,
    headers: {
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "x-load-balancing-endpoint-weight": String(localEndpoints),
    },
  });
}
