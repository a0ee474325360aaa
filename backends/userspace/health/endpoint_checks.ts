import { isServableAddress, UNSERVABLE } from "../../../lib/api/schema.ts";
import { endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { Forwarding } from "../forwarding.ts";
import { CheckSchedule } from "./check_schedule.ts";
import type { FollowedEndpoint } from "./followed_endpoint.ts";
import { HealthCheck } from "./health_check.ts";
import { checkId, checkTargetOf } from "./health_settings.ts";
import { probeEndpoint } from "./probe_endpoint.ts";

/** Checks endpoints; those of several ServicePorts with the same check only once. */
export class EndpointChecks {
  readonly results = { checksPassed: 0, checksFailed: 0, checksTimedOut: 0 };
  readonly #forwarding: Forwarding;
  readonly #onVerdict: (followed: FollowedEndpoint) => void;
  readonly #checks = new Map<string, HealthCheck<FollowedEndpoint>>();
  readonly #schedule: CheckSchedule<FollowedEndpoint>;
  #isClosed = false;

  constructor(forwarding: Forwarding, onVerdict: (followed: FollowedEndpoint) => void) {
    this.#forwarding = forwarding;
    this.#onVerdict = onVerdict;
    this.#schedule = new CheckSchedule(forwarding, (check, signal) => this.#make(check, signal));
  }

  /** Gives an endpoint the check of its ServicePort. */
  choose(followed: FollowedEndpoint): void {
    const target = checkTargetOf(followed.port.plan, followed.endpoint);
    const id = target && checkId(target);
    const before = followed.check;
    if (before?.id === id) return;
    this.leave(followed);
    if (target === undefined || id === undefined) return;
    let check = this.#checks.get(id);
    if (check === undefined) {
      check = new HealthCheck(id, target);
      if (before) check.adopt(before);
      this.#checks.set(id, check);
      this.#schedule.add(check);
    }
    check.users.add(followed);
    followed.check = check;
  }

  /** An endpoint needs its check no longer. */
  leave(followed: FollowedEndpoint): void {
    const { check } = followed;
    followed.check = undefined;
    check?.users.delete(followed);
    if (check === undefined || check.users.size > 0) return;
    this.#checks.delete(check.id);
    this.#schedule.delete(check);
  }

  /** Ends all checks. */
  close(): void {
    this.#isClosed = true;
    this.#schedule.close();
  }

  /** Makes one check. */
  async #make(check: HealthCheck<FollowedEndpoint>, signal: AbortSignal): Promise<void> {
    const refusal = this.#refusalOf(check);
    if (refusal !== undefined) {
      check.refuse(refusal);
    } else {
      this.#forwarding.loops.add();
      const result = await probeEndpoint(this.#forwarding, check.target, signal);
      this.#forwarding.loops.remove();
      if (check.isRemoved || this.#isClosed) return;
      if (result.kind === "passed") this.results.checksPassed++;
      else if (result.kind === "failed") this.results.checksFailed++;
      else if (result.kind === "timeout") this.results.checksTimedOut++;
      check.take(result);
    }
    for (const followed of check.users) this.#onVerdict(followed);
  }

  /** Checks obey the same rules as connections of clients. */
  #refusalOf(
    { target, users: [user] }: { readonly target: HealthCheck<unknown>["target"] } & {
      readonly users: Iterable<FollowedEndpoint>;
    },
  ): string | undefined {
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
