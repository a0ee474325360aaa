/**
 * A machine on which other programs change rules, for tests of watches.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { DriftFigures, DriftWatch } from "../../../backends/netfilter/drift_watch.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

/** The dependencies of a watch, and its reports. A subclass creates the watch and starts it. */
export abstract class DriftStage implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly turns = new OneAtATime();
  /** The reported figures. */
  readonly drift: DriftFigures[] = [];
  readonly onDrift = (figures: DriftFigures): void => void this.drift.push(figures);
  abstract readonly watch: DriftWatch;

  /** Lets time go by, a second at a time. */
  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      await this.clock.advance(1_000);
      await settle();
    }
  }

  /** Warnings, in order. */
  get messages(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  }

  /** Stops the watch; it is to leave no timer. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.watch.stop();
    assertEquals(this.clock.pendingTimers, 0);
  }
}
