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
import { type AddressHandover, HANDOVER_RETRY_MS, type HttpListener } from "../os/http_server.ts";
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

/** A Service with a health check node port. Both families share it and its port. */
interface CheckedService {
  readonly name: NamespacedName;
  port: Port;
  /** Of each family: the plans of its ports, and the distinct addresses of ready endpoints here. */
  readonly families: Map<IpFamily, {
    readonly plans: Map<ServicePortKey, ServicePlan>;
    localEndpoints: number;
  }>;
}

/**
 * Opens and closes the ports as plans change; an observer of syncs
 * (`lib/app/service/service_controller.ts`). The work runs outside of syncs. A port that cannot be
 * opened does not delay others.
 */
export class ServiceHealthServer {
  readonly #services = new Map<ServiceKey, CheckedService>();
  readonly #addresses = new Map<IpFamily, readonly IpAddress[]>();
  /** The sockets of each Service, by their addresses. */
  readonly #open = new Map<ServiceKey, Map<string, { port: Port; listener: HttpListener }>>();
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

  constructor(
    private readonly edges: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly listen: ListenForService;
      /** Returns a number from 0 to 1, like `Math.random`. */
      readonly random: () => number;
    },
    private readonly options: {
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
    },
  ) {}

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
      const plans = this.#services.get(service)?.families.get(family)?.plans;
      if (plans?.delete(key)) touched.add(service);
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
      const checked = this.#services.getOrInsertComputed(
        service,
        () => ({ name: { namespace, name }, port, families: new Map() }),
      );
      checked.port = port;
      checked.families
        .getOrInsertComputed(family, () => ({ plans: new Map(), localEndpoints: 0 }))
        .plans.set(key, found);
      touched.add(service);
    }
    for (const service of touched) {
      const { families } = this.#services.get(service)!;
      const own = families.get(family)!;
      // A pod behind three ports counts once; a terminating pod is not ready.
      const addresses = new Set<IpAddress>();
      for (const { endpoints } of own.plans.values()) {
        for (const { address, isLocal, ready } of endpoints) {
          if (isLocal && ready) addresses.add(address);
        }
      }
      own.localEndpoints = addresses.size;
      if (own.plans.size === 0) families.delete(family);
      if (families.size === 0) this.#services.delete(service);
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
    for (const service of this.#open.keys()) await this.#close(service);
  }

  get #isHandover(): boolean {
    return this.options.handover?.pending === true;
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
      .catch((error) => this.edges.logger.error("Cannot close a health check", { error }))
      .finally(() => {
        this.#working = undefined;
        const gotOne = this.#gotOne;
        this.#gotOne = false;
        if (gotOne && this.#isHandover) this.#tryFailed();
        else this.#work();
        this.#planRetry();
      });
  }

  #planRetry(): void {
    if (this.#failed.size === 0) this.#retryMs = FIRST_RETRY_MS;
    if (this.#failed.size === 0 || this.#stopped || this.#working || this.#retry) return;
    const { clock, random } = this.edges;
    if (this.#isHandover) {
      this.#retry = clock.setTimer(HANDOVER_RETRY_MS, () => this.#tryFailed(TRIED_IN_HANDOVER));
      return;
    }
    this.#retry = clock.setTimer(this.#retryMs * (1 + random() / 10), () => this.#tryFailed());
    this.#retryMs = Math.min(LAST_RETRY_MS, this.#retryMs * 2);
  }

  /** Closes first, because a port may move from one Service to another. */
  async #reconcile(): Promise<void> {
    const services = [...this.#dirty];
    this.#dirty.clear();
    for (const service of services) {
      const checked = this.#services.get(service);
      if (checked === undefined) this.#failed.delete(service);
      const wanted = checked && this.#hostnames(checked);
      await this.#close(
        service,
        (hostname, port) => wanted?.has(hostname) === true && port === checked?.port,
      );
    }
    let opened = 0;
    for (const service of services) {
      if (this.#stopped) return;
      opened += await this.#openMissing(service);
      if (opened < SOCKETS_PER_TURN) continue;
      opened = 0;
      await this.edges.clock.yieldToEventLoop();
    }
  }

  /** Closes the sockets of a Service but those to keep. */
  async #close(
    service: ServiceKey,
    isKept: (hostname: string, port: Port) => boolean = () => false,
  ): Promise<void> {
    const open = this.#open.get(service) ?? new Map();
    const superfluous = [...open].filter(([hostname, { port }]) => !isKept(hostname, port));
    for (const [hostname] of superfluous) open.delete(hostname);
    if (open.size === 0) this.#open.delete(service);
    await Promise.all(superfluous.map(([, { listener }]) => listener.close()));
  }

  /** Returns how many sockets it opened. */
  async #openMissing(service: ServiceKey): Promise<number> {
    const checked = this.#services.get(service);
    if (checked === undefined) return 0;
    const { port } = checked;
    const open = this.#open.getOrInsertComputed(service, () => new Map());
    let opened = 0;
    let gone: Error | undefined;
    for (const hostname of this.#hostnames(checked)) {
      if (open.has(hostname)) continue;
      try {
        const listener = this.edges.listen(
          service,
          { hostname, port },
          (_, peer) => this.#answer(service, peer),
        );
        open.set(hostname, { port, listener });
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
    if (gone !== undefined) this.#reportFailure(service, checked, gone);
    else if (this.#failed.delete(service)) {
      this.#gotOne = true;
      this.edges.logger.info("Health checks of a Service are answered", { object: service });
    }
    return opened;
  }

  #reportFailure(service: ServiceKey, { name, port }: CheckedService, error: Error): void {
    const { logger } = this.edges;
    const waits = this.#isHandover && error instanceof Deno.errors.AddrInUse;
    const before = this.#failed.get(service);
    const logged = waits ? "" : error.message;
    if (!waits) this.options.onListenFailure({ service: name, port, error });
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

  /**
   * Answers a health check (KEP-3836; the weight header is from kubernetes/kubernetes#118999): 200 if this
   * node can serve the Service, else 503. The body is indented by tabs and has no line end, as upstream's. A
   * Service that was just deleted has 200 without a body.
   */
  #answer(service: ServiceKey, peer: IpAddress | undefined): Response {
    const checked = this.#services.get(service);
    if (checked === undefined) return new Response(null);
    const family = peer === undefined ? "IPv4" : ipFamilyOf(peer);
    const localEndpoints = checked.families.get(family)?.localEndpoints ?? 0;
    const serviceProxyHealthy = this.options.proxyHealthy();
    const body = { service: checked.name, localEndpoints, serviceProxyHealthy };
    return new Response(JSON.stringify(body, null, "\t"), {
      status: localEndpoints > 0 && serviceProxyHealthy ? 200 : 503,
      headers: {
        "content-type": "application/json",
        "x-content-type-options": "nosniff",
        "x-load-balancing-endpoint-weight": String(localEndpoints),
      },
    });
  }

  #hostnames({ families }: CheckedService): ReadonlySet<string> {
    const everywhere = IP_FAMILIES.filter((family) => this.options.everywhere(family));
    const wildcard = this.#wildcard ??= this.options.wildcard();
    return healthCheckHostnames([...families.keys()], everywhere, this.#addresses, wildcard);
  }
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
  families: readonly IpFamily[],
  everywhere: readonly IpFamily[],
  addresses: ReadonlyMap<IpFamily, readonly IpAddress[]>,
  wildcard: Wildcard,
): ReadonlySet<string> {
  if (wildcard === "both" && everywhere.length === IP_FAMILIES.length) {
    return new Set(families.length > 0 ? [WILDCARDS.IPv6] : []);
  }
  return new Set(
    families.toSorted().flatMap((family): readonly string[] => {
      const mayBeWild = family === "IPv4" || wildcard === "ipv6-only";
      const isWild = mayBeWild && everywhere.includes(family);
      return isWild ? [WILDCARDS[family]] : addresses.get(family) ?? [];
    }),
  );
}
