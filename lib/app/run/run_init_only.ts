/**
 * `--init-only`: the set-up that needs privileges, so that the proxy itself can run with
 * CAP_NET_ADMIN alone. Unlike upstream's it asks no API server.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { BackendTable, Dependencies } from "../dependencies.ts";
import { HostSettings } from "./host_settings.ts";
import { hostSettingRequests } from "./host_setting_requests.ts";
import { modeSettingsOf } from "./mode_settings.ts";
import type { RunConfiguration } from "./run_configuration.ts";

/**
 * Applies the kernel settings that the mode needs. A refused setting is logged and is no failure,
 * because the later process continues without it.
 */
export async function runInitOnly(
  dependencies: Dependencies & { readonly logger: Logger },
  { proxy, relay, mode, families }: RunConfiguration,
): Promise<void> {
  const { logger } = dependencies;
  const createBackend = (dependencies.backends as Required<BackendTable>)[mode];
  const backends = families.map((family) =>
    createBackend(dependencies, {
      family,
      ...modeSettingsOf({ proxy, relay }),
      belongsTo: () => undefined,
    })
  );
  const requests = await hostSettingRequests(dependencies, { proxy, mode, backends });
  const settings = new HostSettings(dependencies, requests);
  // No later step loads a module.
  await settings.apply({ final: true });
  const refused = settings.outcomes.filter(({ state }) => state === "refused").length;
  logger.info("Set up the machine", { mode, settings: settings.outcomes.length, refused });
}
