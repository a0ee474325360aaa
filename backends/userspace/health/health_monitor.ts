/**
 * The health of the endpoints of one IP family, by checks and by the outcomes of connections. All
 * verdicts are made here. Forwarders only get the set of unhealthy endpoints of each ServicePort.
 *
 * @module
 */
import { formatDuration } from "../../../lib/api/duration.ts";
import { isServableAddress, UNSERVABLE } from "../../../lib/api/schema.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import type { HealthFigures } from "../../../lib/proxy/backend.ts";
import { type Endpoint, type EndpointKey, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type {
  EndpointHealth,
  EndpointHealthChange,
  ServiceInspection,
} from "../../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import { ignoredHealth, usableEndpoints } from "../endpoint_picker.ts";
import type { ConnectionOutcome, Forwarding } from "../forwarding.ts";
import { checkId, type CheckTarget, checkTargetOf, ejectionOf } from "./health_settings.ts";
import { failureText, probeEndpoint, type ProbeResult } from "./probe_endpoint.ts";

/** A ServicePort that has settings for health. */
interface FollowedPort {
  plan: ServicePlan;
  readonly endpoints: Map<EndpointKey, FollowedEndpoint>;
  readonly traffic: ServiceTraffic | undefined;
}

/** One of its endpoints. */
interface FollowedEndpoint {
  readonly port: FollowedPort;
  endpoint: Endpoint;
  check: EndpointCheck | undefined;
  /** Of an endpoint to which a connection has failed. */
  ejection: Ejection | undefined;
  state: EndpointHealth["state"];
  /** The start of the state, by the monotonic clock. */
  since: number;
}

interface Ejection {
  /** Failed connections in succession. */
  failures: number;
  /** Why it is ejected; `undefined` = it is not. */
  reason: string | undefined;
  /** The duration and end of the last time. */
  lastMs: number;
  endsAt: number;
  timer: Timer | undefined;
}

/** The check of an endpoint, which all ServicePorts with an equal one have in common. */
interface EndpointCheck {
  readonly id: string;
  readonly target: CheckTarget;
  /** Without any, it was removed. */
  readonly users: Set<FollowedEndpoint>;
  verdict: "unchecked" | "healthy" | "unhealthy";
  /** Why the endpoint is unhealthy or not checked. */
  reason: string | undefined;
  /** Results in succession that contradict the verdict. */
  contrary: number;
  /** Until it is due; while it is in progress, until it is aborted. */
  timer: Timer | undefined;
  /** In progress. */
  running: AbortController | undefined;
}

/** Verdicts of so long become one change of each ServicePort. */
const BATCH_MS = 10;

const SENTENCES: Readonly<Record<EndpointHealth["state"], string>> = {
  unchecked: "Endpoint is used again",
  healthy: "Endpoint is healthy again",
  unhealthy: "Endpoint is unhealthy: new connections skip it",
  ejected: "Endpoint is ejected: new connections skip it for a time",
};

/** Successive multiples of it modulo 1 never come close to each other, so no two checks start together. */
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;
/** Part of the interval by which it varies, so that checks of many nodes do not fall into step. */
const JITTER = 0.1;
/** Checks that start in one period: no more than 500 a second. */
const MOST_STARTS = 10;
const PERIOD_MS = 20;
/** Interval of attempts to start checks that wait for sockets, if no other one ends here. */
const RETRY_MS = 100;

const NO_ENDPOINTS: ReadonlySet<EndpointKey> = new Set();

/**
 * Follows the endpoints of ServicePorts that have settings for health. Each is checked once in its
 * interval, at a bounded rate and with a bounded number of checks in progress. First checks are spread
 * over the interval. Namespaces take turns if checks have to wait, so that hanging endpoints of one
 * delay its own checks most.
 */
export class HealthMonitor {
  readonly #forwarding: Forwarding;
  readonly #skip: (key: ServicePortKey, unhealthy: ReadonlySet<EndpointKey>) => void;
  readonly #onChanged: (changes: readonly EndpointHealthChange[]) => void;
  readonly #ports = new Map<ServicePortKey, FollowedPort>();
  readonly #checks = new Map<string, EndpointCheck>();
  /** Checks that are due, by namespace. */
  readonly #waiting = new Map<string, Set<EndpointCheck>>();
  readonly #running = new Set<EndpointCheck>();
  #spread: number;
  /** Checks that were started in this period. */
  #starts = 0;
  /** Ends the period, or tries again. */
  #next: Timer | undefined;
  readonly #figures = {
    ...{ checksPassed: 0, checksFailed: 0, checksTimedOut: 0 },
    ...{ ejections: 0, healthy: 0, unhealthy: 0, ejected: 0 },
  };
  #touched = new Set<ServicePortKey>();
  #changes: EndpointHealthChange[] = [];
  #batch: Timer | undefined;
  #isClosed = false;

  /**
   * `skip` replaces the unhealthy endpoints of a ServicePort; `onChanged` is called when endpoints became
   * unhealthy, were ejected, or returned.
   */
  constructor(
    forwarding: Forwarding,
    skip: (key: ServicePortKey, unhealthy: ReadonlySet<EndpointKey>) => void,
    onChanged: (changes: readonly EndpointHealthChange[]) => void,
  ) {
    this.#forwarding = forwarding;
    this.#skip = skip;
    this.#onChanged = onChanged;
    this.#spread = forwarding.random();
  }

  get figures(): HealthFigures {
    return { ...this.#figures };
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
    this.#next?.cancel();
    for (const { timer, running } of [...this.#checks.values(), ...this.#running]) {
      timer?.cancel();
      running?.abort();
    }
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
    this.#choose(followed);
    if (followed.ejection && ejectionOf(port.plan) === undefined) this.#endEjection(followed);
    this.#refresh(followed);
  }

  #drop(followed: FollowedEndpoint): void {
    const { port, endpoint } = followed;
    this.#leave(followed);
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
      this.#skip(key, port ? unhealthyOf(port) : NO_ENDPOINTS);
    }
    if (changes.length === 0) return;
    for (const { state, ...fields } of changes) {
      if (state === "unhealthy" || state === "ejected") {
        this.#forwarding.logger.warn(SENTENCES[state], fields);
      } else this.#forwarding.logger.info(SENTENCES[state], fields);
    }
    this.#onChanged(changes);
  }

  /** Gives an endpoint the check of its ServicePort. The verdict stays if only settings differ. */
  #choose(followed: FollowedEndpoint): void {
    const target = checkTargetOf(followed.port.plan, followed.endpoint);
    const id = target && checkId(target);
    const before = followed.check;
    if (before?.id === id) return;
    this.#leave(followed);
    if (target === undefined || id === undefined) return;
    let check = this.#checks.get(id);
    if (check === undefined) {
      const { verdict = "unchecked", reason } = before ?? {};
      const idle = { contrary: 0, timer: undefined, running: undefined };
      check = { id, target, users: new Set(), verdict, reason, ...idle };
      this.#checks.set(id, check);
      this.#spread = (this.#spread + GOLDEN_RATIO) % 1;
      this.#await(check, this.#spread * target.intervalMs);
    }
    check.users.add(followed);
    followed.check = check;
  }

  /** An endpoint needs its check no longer. One in progress ends without a result. */
  #leave(followed: FollowedEndpoint): void {
    const { check } = followed;
    followed.check = undefined;
    check?.users.delete(followed);
    if (check === undefined || check.users.size > 0) return;
    this.#checks.delete(check.id);
    if (check.running) return;
    check.timer?.cancel();
    const { namespace } = check.target;
    const waiting = this.#waiting.get(namespace);
    waiting?.delete(check);
    if (waiting?.size === 0) this.#waiting.delete(namespace);
  }

  #await(check: EndpointCheck, ms: number): void {
    check.timer = this.#forwarding.clock.setTimer(ms, () => {
      this.#waiting.getOrInsertComputed(check.target.namespace, () => new Set()).add(check);
      this.#startWaiting();
    });
  }

  #startWaiting(): void {
    const { clock, openFiles } = this.#forwarding;
    for (const [namespace, checks] of this.#waiting) {
      if (this.#isClosed || this.#starts === MOST_STARTS) break;
      if (!openFiles.takeCheck(namespace)) continue;
      const [check] = checks;
      // The namespace goes to the end of the line.
      this.#waiting.delete(namespace);
      checks.delete(check!);
      if (checks.size > 0) this.#waiting.set(namespace, checks);
      this.#starts++;
      void this.#run(check!);
    }
    const isRetry = this.#waiting.size > 0 && this.#running.size === 0;
    if (this.#isClosed || (this.#starts === 0 && !isRetry)) return;
    this.#next ??= clock.setTimer(this.#starts > 0 ? PERIOD_MS : RETRY_MS, () => {
      this.#next = undefined;
      this.#starts = 0;
      this.#startWaiting();
    });
  }

  /** Makes one check. */
  async #run(check: EndpointCheck): Promise<void> {
    const { clock, openFiles, random } = this.#forwarding;
    const { intervalMs, namespace, timeoutMs } = check.target;
    const startedAt = clock.now();
    const running = check.running = new AbortController();
    this.#running.add(check);
    // Not at once, as in TcpDialer: an abort in the turn in which the connection is reported would lose
    // its file descriptor for good.
    check.timer = clock.setTimer(timeoutMs, () => {
      check.timer = clock.setTimer(PERIOD_MS, () => running.abort());
    });
    const result = await this.#probe(check, running.signal);
    check.timer.cancel();
    check.running = undefined;
    this.#running.delete(check);
    openFiles.giveCheck(namespace);
    if (check.users.size > 0 && !this.#isClosed) {
      this.#judge(check, result);
      for (const followed of check.users) this.#refresh(followed);
      const pause = intervalMs * (1 + JITTER * (2 * random() - 1));
      this.#await(check, Math.max(0, startedAt + pause - clock.now()));
    }
    this.#startWaiting();
  }

  /** Resolves to why a check is not made, or to its result. */
  async #probe(check: EndpointCheck, signal: AbortSignal): Promise<ProbeResult | string> {
    const refusal = this.#refusalOf(check);
    if (refusal !== undefined) return refusal;
    const { loops } = this.#forwarding;
    loops.add();
    const result = await probeEndpoint(this.#forwarding.engine, check.target, signal);
    loops.remove();
    return result;
  }

  /** Takes a result. The first one decides at once, whatever `rise` and `fall` are. */
  #judge(check: EndpointCheck, result: ProbeResult | string): void {
    if (typeof result === "string") {
      check.verdict = "unchecked";
      check.reason = `not checked: ${result}`;
      check.contrary = 0;
      return;
    }
    if (result.kind === "unknown") return;
    if (result.kind === "passed") this.#figures.checksPassed++;
    else if (result.kind === "failed") this.#figures.checksFailed++;
    else this.#figures.checksTimedOut++;
    const isHealthy = result.kind === "passed";
    const found = isHealthy ? "healthy" : "unhealthy";
    if (found !== check.verdict) {
      const needed = isHealthy ? check.target.rise : check.target.fall;
      if (check.verdict !== "unchecked" && ++check.contrary < needed) return;
      check.verdict = found;
    }
    check.contrary = 0;
    check.reason = isHealthy ? undefined : result.reason;
  }

  /** Checks obey the same rules as connections of clients. */
  #refusalOf({ target, users: [user] }: Omit<EndpointCheck, "users"> & {
    readonly users: Iterable<FollowedEndpoint>;
  }): string | undefined {
    const { address, port, socket } = target;
    if (socket !== undefined || user === undefined) return undefined;
    if (!isServableAddress(address)) return `its address ${UNSERVABLE}`;
    const { endpointLoops, policies } = this.#forwarding;
    const { key } = user.port.plan;
    const place = { key: endpointKey(address, port), address, port };
    return endpointLoops.reasonFor(place, { key, protocol: "TCP" }) ??
      policies?.checkDenialOf(target);
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
