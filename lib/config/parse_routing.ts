import { isInterfaceName, LONGEST_INTERFACE_NAME } from "../net/interface_name.ts";
import type { RoutingSettings } from "../routing/routing_settings.ts";
import { collectProblems, type Expect, type ValidationProblem } from "./expectation.ts";
import { parseBgp } from "./parse_bgp.ts";
import { parsePodNetwork } from "./parse_pod_network.ts";
import { parsePools } from "./parse_pools.ts";
import type { RoutingConfiguration } from "./routing.ts";

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
