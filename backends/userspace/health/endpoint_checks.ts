import { isServableAddress, UNSERVABLE } from "../../../lib/api/schema.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import { type Endpoint, type EndpointKey, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { EndpointHealth } from "../../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { Forwarding } from "../forwarding.ts";
import { checkId, type CheckTarget, checkTargetOf } from "./health_settings.ts";
import { probeEndpoint, type ProbeResult } from "./probe_endpoint.ts";

/** A ServicePort that has settings for health. */
export interface FollowedPort {
  plan: ServicePlan;
  readonly endpoints: Map<EndpointKey, FollowedEndpoint>;
  readonly traffic: ServiceTraffic | undefined;
}

/** One of its endpoints. */
export interface FollowedEndpoint {
  readonly port: FollowedPort;
  endpoint: Endpoint;
  check: EndpointCheck | undefined;
  ejection: Ejection | undefined;
  state: EndpointHealth["state"];
  /** The start of the state, by the monotonic clock. */
  since: number;
}

/** Of an endpoint to which a connection has failed. */
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
export interface EndpointCheck {
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

/** Successive multiples of it modulo 1 never come close to each other, so no two checks start together. */
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;
/** Part of the interval by which it varies, so that checks of many nodes do not fall into step. */
const JITTER = 0.1;
/** Checks that start in one period: no more than 500 a second. */
const MOST_STARTS = 10;
const PERIOD_MS = 20;
/** Interval of attempts to start checks that wait for sockets, if no other one ends here. */
const RETRY_MS = 100;

/**
 * Checks endpoints, each once in its interval, at a bounded rate and with a bounded number in progress.
 * First checks are spread over the interval. Namespaces take turns if checks have to wait, so that
 * hanging endpoints of one delay its own checks most.
 */
export class EndpointChecks {
  readonly results = { checksPassed: 0, checksFailed: 0, checksTimedOut: 0 };
  readonly #forwarding: Forwarding;
  readonly #onVerdict: (followed: FollowedEndpoint) => void;
  readonly #checks = new Map<string, EndpointCheck>();
  /** Checks that are due, by namespace. */
  readonly #waiting = new Map<string, Set<EndpointCheck>>();
  readonly #running = new Set<EndpointCheck>();
  #spread: number;
  /** Starts in this period. */
  #starts = 0;
  /** Ends the period, or tries again. */
  #next: Timer | undefined;
  #isClosed = false;

  constructor(forwarding: Forwarding, onVerdict: (followed: FollowedEndpoint) => void) {
    this.#forwarding = forwarding;
    this.#onVerdict = onVerdict;
    this.#spread = forwarding.random();
  }

  /** Gives an endpoint the check of its ServicePort. The verdict stays if only settings differ. */
  choose(followed: FollowedEndpoint): void {
    const target = checkTargetOf(followed.port.plan, followed.endpoint);
    const id = target && checkId(target);
    const before = followed.check;
    if (before?.id === id) return;
    this.leave(followed);
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
  leave(followed: FollowedEndpoint): void {
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

  /** Ends all checks, and starts no others. */
  close(): void {
    this.#isClosed = true;
    this.#next?.cancel();
    for (const { timer, running } of [...this.#checks.values(), ...this.#running]) {
      timer?.cancel();
      running?.abort();
    }
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
      this.#take(check, result);
      for (const followed of check.users) this.#onVerdict(followed);
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
  #take(check: EndpointCheck, result: ProbeResult | string): void {
    if (typeof result === "string") {
      check.verdict = "unchecked";
      check.reason = `not checked: ${result}`;
      check.contrary = 0;
      return;
    }
    if (result.kind === "unknown") return;
    if (result.kind === "passed") this.results.checksPassed++;
    else if (result.kind === "failed") this.results.checksFailed++;
    else this.results.checksTimedOut++;
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
