/**
 * What a machine holds, read while the plan that it is compared with is still made.
 *
 * @module
 */
import { defaultConfiguration } from "../../config/configuration_schema.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode, KernelReading } from "../../proxy/backend.ts";
import { idleBackendOptions } from "../idle_backend_options.ts";
import type { PlanNodeDependencies } from "../plan_objects.ts";

/** What is read. */
export interface ReadingsOptions {
  readonly mode: BackendMode;
  readonly families: readonly IpFamily[];
  readonly relay: LoadedConfiguration["relay"];
}

/** The readings of one look at a machine, one for each family. What is under way ends with its scope. */
export class ReadingsAhead implements AsyncDisposable {
  readonly #readings = new Map<IpFamily, KernelReading>();

  /** Begins all of them, in a mode that can. Throws nothing: a comparison tells what is in the way. */
  begin(dependencies: PlanNodeDependencies, { mode, families, relay }: ReadingsOptions): void {
    const createBackend = dependencies.backends[mode];
    // Nothing of the settings counts here, and they are not known yet.
    const configuration = { proxy: defaultConfiguration(), relay };
    for (const family of families) {
      const backend = createBackend?.(dependencies, idleBackendOptions(configuration, family));
      const reading = backend?.readAhead?.();
      if (reading) this.#readings.set(family, reading);
    }
  }

  /** That of a family; `undefined` where none was begun. */
  of(family: IpFamily): KernelReading | undefined {
    return this.#readings.get(family);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#readings.values()].map((each) => each[Symbol.asyncDispose]()));
  }
}
