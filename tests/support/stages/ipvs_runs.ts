/**
 * Runs of the ipvs backend on one machine, one after the other.
 *
 * @module
 */
import type { IpvsBackendOptions } from "../../../backends/ipvs/backend.ts";
import { FakeIpvsMachine } from "../fakes/fake_ipvs_machine.ts";
import { IpvsStage } from "./ipvs_stage.ts";

/** Each has a clock of its own. */
export class IpvsRuns {
  readonly machine = new FakeIpvsMachine();

  /** A run until it is stopped. */
  async run(
    action: (stage: IpvsStage) => Promise<void>,
    options: Partial<IpvsBackendOptions> = {},
  ): Promise<void> {
    await using stage = new IpvsStage(this.machine, options);
    await stage.backend.start();
    await action(stage);
  }
}
