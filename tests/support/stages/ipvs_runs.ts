/**
 * Runs of the ipvs backend on one machine, one after the other.
 *
 * @module
 */
import type { IpvsBackendOptions } from "../../../backends/ipvs/backend_options.ts";
import { FakeIpvsMachine } from "../fakes/fake_ipvs_machine.ts";
import { IpvsStage } from "./ipvs_stage.ts";

/** Its clock goes on between the runs. */
export class IpvsRuns {
  readonly machine = new FakeIpvsMachine();
  #passedMs = 0;

  /** A run until it is stopped, or killed. */
  async run(
    action: (stage: IpvsStage) => Promise<void>,
    { isKilled = false, ...options }: Partial<IpvsBackendOptions> & { isKilled?: boolean } = {},
  ): Promise<void> {
    const stage = new IpvsStage(this.machine, options);
    stage.clock.jump(this.#passedMs);
    await stage.backend.start();
    await action(stage);
    const { text } = this.machine.recordFile;
    await stage[Symbol.asyncDispose]();
    // What a killed one had not written is lost.
    if (isKilled) this.machine.recordFile.text = text;
    this.#passedMs += stage.clock.now();
  }

  /** Nothing runs for so long, or the clock is set. */
  wait(ms: number): void {
    this.#passedMs += ms;
  }
}
