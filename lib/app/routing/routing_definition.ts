/**
 * Creates the controller of addresses and routes for a run, and removes what it added to the machine.
 *
 * @module
 */
import { DEFAULT_CNI_CONFIG } from "../../config/routing.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { ControllerDefinition } from "../controllers.ts";
import { RoutingController } from "./routing_controller.ts";

/** Enabled by `--routing`; what it added is removed whether or not it is. */
export const ROUTING_CONTROLLER: ControllerDefinition = {
  name: "routing",
  isEnabled: ({ proxy }) => proxy.routing.enabled,
  create: (parts) => new RoutingController(parts),
  async *cleanUp(dependencies, { proxy, relay }) {
    const { routingBackends } = dependencies;
    if (!routingBackends) return;
    for (const family of IP_FAMILIES) {
      const options = { family, announceIntervalMs: 0 };
      await using backend = routingBackends.layer2(dependencies, options);
      yield await backend.cleanup(relay);
    }
    await using backend = routingBackends.bgp(dependencies, proxy.routing.bgp);
    yield await backend.cleanup(relay);
    const { cniConfig } = proxy.routing.podNetwork;
    await using pods = routingBackends.podNetwork(dependencies, {
      isThorough: true,
      cniFiles: [DEFAULT_CNI_CONFIG, ...cniConfig === "" ? [] : [cniConfig]],
    });
    yield await pods.cleanup(relay);
  },
};
