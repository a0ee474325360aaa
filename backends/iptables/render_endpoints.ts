import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { Rule, RuleMatch } from "../netfilter/iptables/iptables_objects.ts";
import { endpointName } from "../netfilter/names.ts";

/** The decimals that upstream writes; the tools print one more. */
const PROBABILITY_DECIMALS = 10;

/**
 * Sends matching packets to one of the endpoints with equal probability; with session affinity, to
 * the client's last endpoint.
 *
 * Affinity needs two rules for each endpoint. `--update` matches only while the client was seen
 * within the time-out, and renews the entry. kube-proxy needs `--rcheck` here and `--set` in a
 * separate chain for the same effect. If no list contains the client, the second half chooses an
 * endpoint, and `--set` records the client after `statistic` has matched.
 */
export function endpointRules(
  plan: Pick<ServicePlan, "affinityTimeoutSeconds" | "name" | "protocol">,
  endpoints: readonly Endpoint[],
  match: RuleMatch,
): readonly Rule[] {
  const { affinityTimeoutSeconds: seconds } = plan;
  // `--to-destination` with a port needs the protocol in the rule itself.
  const base = { ...match, protocol: plan.protocol };
  if (seconds === undefined) {
    return endpoints.map((endpoint, index) => ({
      ...base,
      ...extended(match, chance(endpoints.length - index)),
      target: dnat(endpoint),
    }));
  }
  const named = endpoints.map((endpoint) => ({
    endpoint,
    list: ["recent", "--name", endpointName(plan.name, endpoint.key)],
  }));
  const known = named.map(({ endpoint, list }) => ({
    ...base,
    ...extended(match, [[...list, "--update", "--seconds", String(seconds), "--reap"]]),
    target: dnat(endpoint),
  }));
  const drawn = named.map(({ endpoint, list }, index) => ({
    ...base,
    ...extended(match, [...chance(endpoints.length - index), [...list, "--set"]]),
    target: dnat(endpoint),
  }));
  return [...known, ...drawn];
}

/** Matches with a probability of 1 in `left`. The last endpoint needs no match. */
function chance(left: number): readonly (readonly string[])[] {
  if (left === 1) return [];
  const probability = (1 / left).toFixed(PROBABILITY_DECIMALS);
  return [["statistic", "--mode", "random", "--probability", probability]];
}

function dnat({ key }: Endpoint): readonly string[] {
  return ["DNAT", "--to-destination", key];
}

function extended(
  { extensions = [] }: RuleMatch,
  further: NonNullable<RuleMatch["extensions"]>,
): Pick<RuleMatch, "extensions"> {
  const all = [...extensions, ...further];
  return all.length === 0 ? {} : { extensions: all };
}
