import type { LoadedConfiguration } from "../../config/load.ts";
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { writeFile } from "../../os/write_file.ts";
import { BACKEND_MODES, type BackendMode } from "../../proxy/backend.ts";
import type { Dependencies } from "../dependencies.ts";
import { idleBackendOptions } from "../run/plan_settings.ts";

interface OtherModesOptions {
  readonly mode: BackendMode;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
}

/**
 * Removes the leftovers of kube-relay's other modes. A file in the state directory lists the modes
 * that have run: without it the demo on a node of a cluster would remove the rules of the
 * kube-relay there.
 */
export class OtherModes {
  readonly #dependencies: Dependencies & { readonly logger: Logger };
  readonly #options: OtherModesOptions;
  readonly #directory: string;
  readonly #path: string;

  constructor(
    dependencies: Dependencies & { readonly logger: Logger },
    options: OtherModesOptions,
  ) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#directory = options.configuration.relay.stateDirectory;
    this.#path = recordIn(this.#directory);
  }

  /** Records the mode before it writes anything. Never throws. */
  async note(): Promise<void> {
    const modes = await this.#modes();
    if (!modes.has(this.#options.mode)) await this.#write(modes.add(this.#options.mode));
  }

  /**
   * Cleans up after every other recorded mode: remaining rules would send packets to endpoints that no
   * longer exist. Failures are logged and tried again at the next start.
   */
  async remove(signal: AbortSignal): Promise<void> {
    const { backends } = this.#dependencies;
    const { mode } = this.#options;
    const modes = await this.#modes();
    for (const other of BACKEND_MODES) {
      if (!backends[other] || other === mode || !modes.has(other)) continue;
      if (!await this.#cleanUp(other, signal)) return;
      modes.delete(other);
      await this.#write(modes);
    }
  }

  /** Resolves to whether everything was removed. */
  async #cleanUp(other: BackendMode, signal: AbortSignal): Promise<boolean> {
    const { backends, logger } = this.#dependencies;
    let isDone = true;
    for (const family of IP_FAMILIES) {
      if (signal.aborted) return false;
      const options = idleBackendOptions(this.#options.configuration, family);
      await using backend = backends[other]!(this.#dependencies, options);
      const { removed, failed } = await backend.cleanup();
      for (const what of removed) logger.info("Removed objects of another mode", { other, what });
      for (const what of failed) {
        logger.warn("Cannot remove objects of another mode", { other, what });
        isDone = false;
      }
    }
    return isDone;
  }

  async #modes(): Promise<Set<string>> {
    try {
      return new Set((await Deno.readTextFile(this.#path)).split("\n").filter(Boolean));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) this.#warn(error);
      return new Set();
    }
  }

  async #write(modes: ReadonlySet<string>): Promise<void> {
    try {
      await Deno.mkdir(this.#directory, { recursive: true, mode: 0o700 });
      await writeFile(this.#path, "public", [...modes].map((mode) => `${mode}\n`).join(""));
    } catch (error) {
      this.#warn(error);
    }
  }

  #warn(error: unknown): void {
    this.#dependencies.logger.warn(
      "Cannot write the record of modes; leftovers of another mode must be removed with --cleanup",
      { path: this.#path, error },
    );
  }
}

/** Removes the record after a cleanup of every mode. Throws as Deno.remove(). */
export async function forgetModes(stateDirectory: string): Promise<void> {
  try {
    await Deno.remove(recordIn(stateDirectory));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function recordIn(stateDirectory: string): string {
  return `${stateDirectory}/modes`;
}
