import { POD_ROUTE_METRIC } from "../routing/pod_network_plan.ts";
import type { PodNetworkSettings } from "../routing/routing_settings.ts";
import type { Expect } from "./expectation.ts";
import {
  type PodNetworkConfiguration,
  ROUTING_CHOICES,
  type RoutingConfiguration,
} from "./routing.ts";

/** The smallest MTU of IPv6, which pods may have. */
const SMALLEST_MTU = 1_280;

/** Parses the block `routing.podNetwork`; `undefined` if all its parts are off. */
export function parsePodNetwork(
  { podNetwork, bgp: { imports } }: Pick<RoutingConfiguration, "podNetwork" | "bgp">,
  expect: Expect,
): PodNetworkSettings | undefined {
  const { routes, cniConfig, mtu, portMappings, masquerade } = podNetwork;
  const overlay = parseOverlay(podNetwork, expect);
  expect(
    cniConfig === "" || /^\/.*[^/]\.conflist$/.test(cniConfig),
    "routing.podNetwork.cniConfig",
    `Expected an absolute path that ends in .conflist, found '${cniConfig}'`,
  );
  expect(
    mtu === 0 || mtu >= SMALLEST_MTU,
    "routing.podNetwork.mtu",
    `Expected 0 or at least ${SMALLEST_MTU}, which IPv6 needs, found ${mtu}`,
  );
  if (!routes && overlay === "off" && cniConfig === "") return undefined;
  expect(
    imports.metric !== POD_ROUTE_METRIC,
    "routing.bgp.imports.metric",
    `Expected another metric than ${imports.metric}, which routes of routing.podNetwork have`,
  );
  return {
    routes: routes || overlay !== "off",
    overlay,
    ...(cniConfig !== "" && { cniConfig }),
    ...(mtu !== 0 && { mtu }),
    portMappings,
    masquerade,
  };
}

function parseOverlay(
  { overlay }: PodNetworkConfiguration,
  expect: Expect,
): PodNetworkSettings["overlay"] {
  const known = ROUTING_CHOICES.overlay.find((each) => each === overlay);
  expect(
    known !== undefined,
    "routing.podNetwork.overlay",
    `Expected one of ${ROUTING_CHOICES.overlay.join(", ")}, found '${overlay}'`,
  );
  return known ?? "off";
}
