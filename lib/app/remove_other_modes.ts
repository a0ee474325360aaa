/**
 * What kube-relay itself left on the machine in another mode: it goes once Services work in this one.
 *
 * @module
 */
import type { LoadedConfiguration } from "../config/load.ts";
import type { Logger } from "../log/logger.ts";
import { IP_FAMILIES } from "../net/ip_address.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { Dependencies } from "./dependencies.ts";
import { idleBackendOptions } from "./idle_backend_options.ts";

/** Which mode stays. */
export interface OtherModes {
  readonly mode: BackendMode;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly signal: AbortSignal;
}

/**
 * Takes away what every other mode of this build ever added. Rules that stayed would go on sending
 * packets to endpoints that are no more. What can't be removed is told and left.
 */
export async function removeOtherModes(
  dependencies: Dependencies & { readonly logger: Logger },
  { mode, configuration, signal }: OtherModes,
): Promise<void> {
  const { backends, logger, process } = dependencies;
  // Whoever can't change rules has not left any, and must not be troubled with them.
  if (process.uid !== 0) return;
  for (const [other, createBackend] of Object.entries(backends)) {
    if (other === mode) continue;
    for (const family of IP_FAMILIES) {
      if (signal.aborted) return;
      const options = idleBackendOptions(configuration, family);
      await using backend = createBackend({ ...dependencies, logger }, options);
      const { removed, failed } = await backend.cleanup();
      for (const what of removed) logger.info("Removed something of another mode", { other, what });
      for (const what of failed) {
        logger.warn("Cannot remove something of another mode", { other, what });
      }
    }
  }
}
