import { isInterfaceName, LONGEST_INTERFACE_NAME } from "../net/interface_name.ts";
import { POD_ROUTE_METRIC } from "../routing/pod_network_plan.ts";
import type { RoutingSettings } from "../routing/routing_settings.ts";
import { collectProblems, type Expect, type ValidationProblem } from "./expectation.ts";
import { parseBgp } from "./parse_bgp.ts";
import { parsePools } from "./parse_pools.ts";
import { ROUTING_CHOICES, type RoutingConfiguration } from "./routing.ts";

const LABEL = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
/** The API server refuses any other class. */
const CLASS = /^(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$/;

/** Returns the settings of a valid configuration. Throws a TypeError for any other, which is a bug. */
export function routingSettingsOf(routing: RoutingConfiguration): RoutingSettings {
  const problems: ValidationProblem[] = [];
  const settings = parseRouting(routing, collectProblems(problems));
  const [problem] = problems;
  if (problem) throw new TypeError(`Cannot use ${problem.path}: ${problem.message}`);
  return settings;
}

/**
 * Parses the block, and reports each invalid value. Does so even if the block is disabled, because a
 * flag may enable it.
 */
export function parseRouting(routing: RoutingConfiguration, expect: Expect): RoutingSettings {
  const { loadBalancerClass, leaseNamespace, layer2, bgp } = routing;
  expect(
    CLASS.test(loadBalancerClass),
    "routing.loadBalancerClass",
    `Expected a class such as kube-relay.io/load-balancer, found '${loadBalancerClass}'`,
  );
  expect(
    LABEL.test(leaseNamespace),
    "routing.leaseNamespace",
    `Expected the name of a namespace, found '${leaseNamespace}'`,
  );
  for (const [index, name] of layer2.interfaces.entries()) {
    expect(
      isInterfaceName(name),
      `routing.layer2.interfaces.${index}`,
      `Expected the name of an interface, at most ${LONGEST_INTERFACE_NAME} bytes without blank, ` +
        `slash or colon, found '${name}'`,
    );
  }
  const pools = parsePools(routing, expect);
  const podNetwork = parsePodNetwork(routing, expect);
  const settings = parseBgp(bgp, expect);
  return {
    loadBalancerClass,
    defaultLoadBalancerClass: routing.defaultLoadBalancerClass,
    pools,
    leaseNamespace,
    leaseDurationSeconds: routing.leaseDurationSeconds,
    layer2,
    ...(podNetwork && { podNetwork }),
    ...(bgp.enabled && { bgp: settings }),
  };
}

/** The smallest MTU of IPv6, which pods may have. */
const SMALLEST_MTU = 1_280;

/** Parses the block `routing.podNetwork`; `undefined` if all its parts are off. */
function parsePodNetwork(
  { podNetwork, bgp: { imports } }: Pick<RoutingConfiguration, "podNetwork" | "bgp">,
  expect: Expect,
): RoutingSettings["podNetwork"] {
  const { routes, cniConfig, mtu, portMappings, masquerade } = podNetwork;
  const overlay = ROUTING_CHOICES.overlay.find((each) => each === podNetwork.overlay) ?? "off";
  expect(
    overlay === podNetwork.overlay,
    "routing.podNetwork.overlay",
    `Expected one of ${ROUTING_CHOICES.overlay.join(", ")}, found '${podNetwork.overlay}'`,
  );
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
