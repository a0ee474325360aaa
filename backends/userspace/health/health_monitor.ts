/**
 * The health of the endpoints of one IP family, by checks and by the outcomes of connections. All
 * verdicts are made here. Forwarders only get the set of unhealthy endpoints of each ServicePort.
 *
 * @module
 */
import { formatDuration } from "../../../lib/api/duration.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import type { HealthFigures } from "../../../lib/proxy/backend.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type {
  EndpointHealth,
  EndpointHealthChange,
  ServiceInspection,
} from "../../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import { ignoredHealth, usableEndpoints } from "../endpoint_picker.ts";
import type { ConnectionOutcome, Forwarding } from "../forwarding.ts";
import { EndpointChecks, type FollowedEndpoint, type FollowedPort } from "./endpoint_checks.ts";
import { ejectionOf } from "./health_settings.ts";
import { failureText } from "./probe_endpoint.ts";

/** Receives the verdicts. */
interface HealthReceiver {
  /** Replaces the unhealthy endpoints of a ServicePort. Plain data. */
  skip(servicePort: ServicePortKey, unhealthy: ReadonlySet<EndpointKey>): void;
  /** Endpoints that became unhealthy, were ejected, or returned. */
  changed(changes: readonly EndpointHealthChange[]): void;
}

/** Verdicts of so long become one change of each ServicePort. */
const BATCH_MS = 10;

const SENTENCES: Readonly<Record<EndpointHealth["state"], string>> = {
  unchecked: "Endpoint is used again",
  healthy: "Endpoint is healthy again",
  unhealthy: "Endpoint is unhealthy: new connections skip it",
  ejected: "Endpoint is ejected: new connections skip it for a time",
};

const NO_ENDPOINTS: ReadonlySet<EndpointKey> = new Set();

/** Follows the endpoints of ServicePorts that have settings for health. */
export class HealthMonitor {
  readonly #forwarding: Forwarding;
  readonly #receiver: HealthReceiver;
  readonly #ports = new Map<ServicePortKey, FollowedPort>();
  readonly #checks: EndpointChecks;
  readonly #figures = {
    ejections: 0,
    healthy: 0,
    unhealthy: 0,
    ejected: 0,
  };
  #touched = new Set<ServicePortKey>();
  #changes: EndpointHealthChange[] = [];
  #batch: Timer | undefined;
  #isClosed = false;

  constructor(forwarding: Forwarding, receiver: HealthReceiver) {
    this.#forwarding = forwarding;
    this.#receiver = receiver;
    this.#checks = new EndpointChecks(forwarding, (followed) => this.#refresh(followed));
  }

  get figures(): HealthFigures {
    return { ...this.#checks.results, ...this.#figures };
  }

  /** Follows the endpoints that a ServicePort forwards to; none, if its plan has no settings for health. */
  follow(plan: ServicePlan): void {
    const { edge, key } = plan;
    if (edge?.healthCheck === undefined && edge?.ejectAfter === undefined) return this.forget(key);
    const known = this.#ports.get(key);
    if (known?.plan === plan) return;
    const traffic = known ? known.traffic : this.#forwarding.traffic?.enter(plan.name);
    const port = known ?? { plan, endpoints: new Map(), traffic };
    const isSame = port.plan.edge === edge;
    port.plan = plan;
    this.#ports.set(key, port);
    const present = new Map(endpointListsOf(plan).flat().map((each) => [each.key, each]));
    for (const followed of port.endpoints.values()) {
      if (!present.has(followed.endpoint.key)) this.#drop(followed);
    }
    for (const endpoint of present.values()) {
      const followed = port.endpoints.get(endpoint.key);
      if (followed?.endpoint !== endpoint || !isSame) this.#take(port, endpoint);
    }
  }

  /** Forgets a ServicePort. */
  forget(key: ServicePortKey): void {
    const port = this.#ports.get(key);
    if (port === undefined) return;
    for (const followed of port.endpoints.values()) this.#drop(followed);
    this.#ports.delete(key);
  }

  /** Takes the outcome of a connection. */
  observe({ servicePort, endpoint, failure }: ConnectionOutcome): void {
    const followed = this.#ports.get(servicePort)?.endpoints.get(endpoint);
    const settings = followed && ejectionOf(followed.port.plan);
    if (followed === undefined || settings === undefined) return;
    const ejection = followed.ejection ??= {
      ...{ failures: 0, reason: undefined, lastMs: 0, endsAt: -Infinity, timer: undefined },
    };
    // A connection that was begun before an ejection does not end it.
    if (ejection.reason !== undefined) return;
    ejection.failures = failure === undefined ? 0 : ejection.failures + 1;
    const { after, firstMs, longestMs } = settings;
    if (failure === undefined || ejection.failures < after) return;
    const { clock } = this.#forwarding;
    // An endpoint that lasted as long as it was ejected begins from scratch.
    const isAgain = clock.now() - ejection.endsAt < ejection.lastMs;
    ejection.lastMs = isAgain ? Math.min(2 * ejection.lastMs, longestMs) : firstMs;
    ejection.endsAt = clock.now() + ejection.lastMs;
    ejection.reason = `${after} connections in succession failed, ` +
      `the last one: ${failureText(failure)}`;
    ejection.timer = clock.setTimer(ejection.lastMs, () => {
      ejection.reason = undefined;
      ejection.failures = 0;
      this.#refresh(followed);
    });
    this.#figures.ejections++;
    this.#refresh(followed);
  }

  /** Returns the state of the endpoints of a ServicePort; `undefined` = it has no settings for health. */
  inspect(key: ServicePortKey): ServiceInspection["health"] {
    const port = this.#ports.get(key);
    if (port === undefined) return undefined;
    const [unhealthy, { edge }] = [unhealthyOf(port), port.plan];
    const [ignored] = endpointListsOf(port.plan).flatMap((list) =>
      ignoredHealth(list, unhealthy, edge) ?? []
    );
    return {
      endpoints: port.endpoints.values().map((each) => ({
        ...{ endpoint: each.endpoint.key, state: each.state, ...reasonOf(each) },
        forMs: this.#forwarding.clock.now() - each.since,
      })).toArray(),
      ...(ignored !== undefined && { ignored }),
    };
  }

  /** The endpoints that new connections of a ServicePort skip, with the reason. */
  skipped(key: ServicePortKey): ReadonlyMap<EndpointKey, string> {
    const port = this.#ports.get(key);
    const unhealthy = port && unhealthyOf(port);
    const skipped = new Map<EndpointKey, string>();
    if (port === undefined || unhealthy === undefined) return skipped;
    for (const list of endpointListsOf(port.plan)) {
      if (usableEndpoints(list, unhealthy, port.plan.edge) === list) continue;
      for (const { key } of list) {
        if (!unhealthy.has(key)) continue;
        const followed = port.endpoints.get(key)!;
        const { reason } = reasonOf(followed);
        const seconds = Math.round((this.#forwarding.clock.now() - followed.since) / 1000);
        skipped.set(key, `${followed.state} for ${formatDuration(1000 * seconds)}: ${reason}`);
      }
    }
    return skipped;
  }

  /** Ends all checks. */
  close(): void {
    this.#isClosed = true;
    this.#checks.close();
    this.#batch?.cancel();
    for (const { endpoints } of this.#ports.values()) {
      for (const { ejection } of endpoints.values()) ejection?.timer?.cancel();
    }
  }

  #take(port: FollowedPort, endpoint: Endpoint): void {
    let followed = port.endpoints.get(endpoint.key);
    if (followed === undefined) {
      const since = this.#forwarding.clock.now();
      followed = {
        ...{ port, endpoint, since, state: "unchecked" },
        ...{ check: undefined, ejection: undefined },
      };
      port.endpoints.set(endpoint.key, followed);
      this.#count(followed, 1);
    }
    followed.endpoint = endpoint;
    this.#checks.choose(followed);
    if (followed.ejection && ejectionOf(port.plan) === undefined) this.#endEjection(followed);
    this.#refresh(followed);
  }

  #drop(followed: FollowedEndpoint): void {
    const { port, endpoint } = followed;
    this.#checks.leave(followed);
    this.#endEjection(followed);
    this.#count(followed, -1);
    port.endpoints.delete(endpoint.key);
    if (isSkipped(followed)) this.#touch(port.plan.key);
  }

  #endEjection(followed: FollowedEndpoint): void {
    followed.ejection?.timer?.cancel();
    followed.ejection = undefined;
  }

  /** Applies the verdict on an endpoint. */
  #refresh(followed: FollowedEndpoint): void {
    const { check, ejection, state: before, port } = followed;
    const state = ejection?.reason === undefined ? check?.verdict ?? "unchecked" : "ejected";
    if (state === before) return;
    this.#count(followed, -1);
    const wasSkipped = isSkipped(followed);
    followed.state = state;
    followed.since = this.#forwarding.clock.now();
    this.#count(followed, 1);
    if (!wasSkipped && !isSkipped(followed)) return;
    const { endpoint: { key: endpoint } } = followed;
    this.#changes.push({ servicePort: port.plan.key, endpoint, state, ...reasonOf(followed) });
    this.#touch(port.plan.key);
  }

  #count({ state, port: { traffic } }: FollowedEndpoint, step: 1 | -1): void {
    const name = state === "unchecked" ? "healthy" : state;
    this.#figures[name] += step;
    if (traffic === undefined) return;
    traffic.healthyEndpoints ??= 0;
    traffic.unhealthyEndpoints ??= 0;
    traffic.ejectedEndpoints ??= 0;
    traffic[`${name}Endpoints`]! += step;
  }

  #touch(key: ServicePortKey): void {
    if (this.#isClosed) return;
    this.#touched.add(key);
    this.#batch ??= this.#forwarding.clock.setTimer(BATCH_MS, () => this.#deliver());
  }

  #deliver(): void {
    const [touched, changes] = [this.#touched, this.#changes];
    this.#batch = undefined;
    this.#touched = new Set();
    this.#changes = [];
    for (const key of touched) {
      const port = this.#ports.get(key);
      this.#receiver.skip(key, port ? unhealthyOf(port) : NO_ENDPOINTS);
    }
    if (changes.length === 0) return;
    for (const { state, ...fields } of changes) {
      if (state === "unhealthy" || state === "ejected") {
        this.#forwarding.logger.warn(SENTENCES[state], fields);
      } else this.#forwarding.logger.info(SENTENCES[state], fields);
    }
    this.#receiver.changed(changes);
  }
}

/** Whether new connections skip an endpoint, unless too few others remain. */
function isSkipped({ state }: FollowedEndpoint): boolean {
  return state === "unhealthy" || state === "ejected";
}

/** The endpoints that new connections skip. */
function unhealthyOf({ endpoints }: FollowedPort): ReadonlySet<EndpointKey> {
  return new Set(endpoints.values().filter(isSkipped).map(({ endpoint }) => endpoint.key));
}

/** Why connections do not use an endpoint, or why it is not checked. */
function reasonOf({ ejection, check }: FollowedEndpoint): { readonly reason?: string } {
  const reason = ejection?.reason ?? check?.reason;
  return reason === undefined ? {} : { reason };
}
