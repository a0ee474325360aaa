import type { CheckTarget } from "./health_settings.ts";
import type { DueItem } from "./due_queue.ts";
import type { ProbeResult } from "./probe_endpoint.ts";

/** What checks have found: nothing yet, or why there are none, or a verdict. */
export type CheckVerdict = "unchecked" | "healthy" | "unhealthy";

/** The check of one endpoint, and its verdict by `rise` and `fall`. Its users are of any type. */
export class HealthCheck<User> implements DueItem {
  dueAt = 0;
  place: number | undefined;
  /** In progress; aborted after the time-out. */
  running: AbortController | undefined;
  /** The time-out has passed, but a connection that was made in time may still be reported. */
  isLate = false;
  isRemoved = false;
  readonly id: string;
  readonly target: CheckTarget;
  readonly users = new Set<User>();
  #verdict: CheckVerdict = "unchecked";
  #reason: string | undefined;
  /** Results in succession that contradict the verdict. */
  #contrary = 0;

  constructor(id: string, target: CheckTarget) {
    this.id = id;
    this.target = target;
  }

  get verdict(): CheckVerdict {
    return this.#verdict;
  }

  /** Why the endpoint is unhealthy or not checked. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Goes on from the verdict of another check of the endpoint. */
  adopt({ verdict, reason }: Pick<HealthCheck<User>, "verdict" | "reason">): void {
    this.#verdict = verdict;
    this.#reason = reason;
  }

  /** The check is not made, for a reason. */
  refuse(reason: string): void {
    this.#verdict = "unchecked";
    this.#reason = `not checked: ${reason}`;
    this.#contrary = 0;
  }

  /** Takes a result. The first one decides at once, whatever `rise` and `fall` are. */
  take(result: ProbeResult): void {
    if (result.kind === "unknown") return;
    const found = result.kind === "passed" ? "healthy" : "unhealthy";
    if (result.kind !== "passed" && this.#verdict === "unhealthy") this.#reason = result.reason;
    if (found === this.#verdict) {
      this.#contrary = 0;
      return;
    }
    const { rise, fall } = this.target;
    const needed = found === "healthy" ? rise : fall;
    if (this.#verdict !== "unchecked" && ++this.#contrary < needed) return;
    this.#contrary = 0;
    this.#verdict = found;
    this.#reason = result.kind === "passed" ? undefined : result.reason;
  }
}
