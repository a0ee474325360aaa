/**
 * Creates the controller of NetworkPolicies for a run, and removes its rules.
 *
 * @module
 */
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import type { ControllerDefinition } from "../controllers.ts";
import { NetworkPolicyController } from "./policy_controller.ts";

/** Enabled by `--network-policy`; its rules are removed whether or not it is. */
export const NETWORK_POLICY_CONTROLLER: ControllerDefinition = {
  name: "network-policy",
  isEnabled: ({ proxy }) => proxy.networkPolicy.enabled,
  create: (parts) => new NetworkPolicyController(parts),
  async *cleanUp(dependencies, { proxy, relay }) {
    const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, "nftables");
    for (const create of Object.values(dependencies.policyBackends ?? {})) {
      for (const family of IP_FAMILIES) {
        await using backend = create(dependencies, { family, syncPeriodMs });
        yield await (relay.dryRun ? backend.previewCleanup() : backend.cleanup());
      }
    }
  },
};
