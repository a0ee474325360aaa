import type { DueItem } from "./due_queue.ts";
import type { EjectionSettings } from "./health_settings.ts";

/** Counts failed connections to an endpoint in succession, and decides how long it is ejected. */
export class Ejection<User> implements DueItem {
  dueAt = 0;
  place: number | undefined;
  readonly user: User;
  /** Why it is ejected; `undefined` = it is not. */
  reason: string | undefined;
  #failures = 0;
  /** Duration of the last ejection. */
  #lastMs = 0;
  #endsAt = -Infinity;

  constructor(user: User) {
    this.user = user;
  }

  /** A connection was made. One that was begun before the ejection does not end it. */
  succeeded(): void {
    if (this.reason === undefined) this.#failures = 0;
  }

  /** A connection could not be made. Returns when the ejection that begins now ends; `undefined` = none. */
  failed(
    text: string,
    { settings: { after, firstMs, longestMs }, now }: {
      readonly settings: EjectionSettings;
      readonly now: number;
    },
  ): number | undefined {
    if (this.reason !== undefined || ++this.#failures < after) return undefined;
    // An endpoint that lasted as long as it was ejected begins from scratch.
    const isAgain = this.#lastMs > 0 && now - this.#endsAt < this.#lastMs;
    this.#lastMs = isAgain ? Math.min(2 * this.#lastMs, longestMs) : firstMs;
    this.#endsAt = now + this.#lastMs;
    this.reason = `${after} connections in succession failed, the last one: ${text}`;
    return this.#endsAt;
  }

  /** The time of the ejection has passed. */
  end(): void {
    this.reason = undefined;
    this.#failures = 0;
  }
}
