/**
 * The Services of the benchmark in the layout of kube-proxy 1.36, as it writes it for more than 1,000
 * endpoints: eight rules and three chains for a Service, without comments in the latter.
 *
 * @module
 */
import { chainLine } from "../../../backends/netfilter/iptables/iptables_objects.ts";
import { endpointName, serviceChainNames } from "../../../backends/netfilter/names.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import { BENCH_PORT } from "../agent_protocol.ts";
import { benchClusterIp, benchEndpoints, benchServiceName, POD_CIDR } from "../bench_services.ts";

const CHAINS = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"];
const JUMPS = [
  '-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  '-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  '-I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
];
const FIXED_RULES = [
  "-A KUBE-POSTROUTING -m mark ! --mark 0x00004000/0x00004000 -j RETURN",
  "-A KUBE-POSTROUTING -j MARK --xor-mark 0x00004000",
  '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
  "-A KUBE-MARK-MASQ -j MARK --or-mark 0x00004000",
];
const NODE_PORTS =
  '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS';

/**
 * Returns the first write of its sync to table nat, without the jumps, for which it starts separate
 * processes.
 */
export function kubeProxyFull(services: number): string {
  const indexes = Array.from({ length: services }, (_, index) => index);
  return nat([
    ...CHAINS.map(chainLine),
    ...indexes.flatMap((index) => ownChains(index).map(chainLine)),
    ...JUMPS,
    ...FIXED_RULES,
    ...indexes.flatMap((index) => [entryRule(index), ...ownRules(index)]),
    NODE_PORTS,
  ]);
}

/**
 * Returns its write after a change of one Service's endpoints: every entry, and the chains of that
 * Service.
 */
export function kubeProxyPartial(
  services: number,
  { changed, version }: { readonly changed: number; readonly version: number },
): string {
  const indexes = Array.from({ length: services }, (_, index) => index);
  const stale = ownChains(changed, version - 1).slice(1);
  return nat([
    ...CHAINS.map(chainLine),
    ...[...ownChains(changed, version), ...stale].map(chainLine),
    ...FIXED_RULES,
    ...indexes.map(entryRule),
    ...ownRules(changed, version),
    ...stale.map((chain) => `-X ${chain}`),
    NODE_PORTS,
  ]);
}

function nat(lines: readonly string[]): string {
  return ["*nat", ...lines, "COMMIT", ""].join("\n");
}

function serviceMatch(index: number): string {
  const title = `ns/${benchServiceName(index)}:http cluster IP`;
  return `-m comment --comment "${title}" -m tcp -p tcp -d ${
    benchClusterIp(index)
  } --dport ${BENCH_PORT}`;
}

function entryRule(index: number): string {
  return `-A KUBE-SERVICES ${serviceMatch(index)} -j ${ownChains(index)[0]}`;
}

/** SVC, and a SEP for each endpoint. */
function ownChains(index: number, version = 0): readonly [string, ...string[]] {
  const name = {
    namespace: "ns",
    name: benchServiceName(index),
    port: "http",
    protocol: "TCP",
  } as const;
  const endpoints = benchEndpoints(index, version);
  return [
    serviceChainNames(name).cluster,
    ...endpoints.map((endpoint) => endpointName(name, endpoint as EndpointKey)),
  ];
}

function ownRules(index: number, version = 0): readonly string[] {
  const [service, ...chains] = ownChains(index, version);
  const endpoints = benchEndpoints(index, version);
  return [
    `-A ${service} ${serviceMatch(index)} ! -s ${POD_CIDR} -j KUBE-MARK-MASQ`,
    ...chains.map((chain, nth) => {
      const left = chains.length - nth;
      const chance = left === 1
        ? ""
        : ` -m statistic --mode random --probability ${(1 / left).toFixed(10)}`;
      return `-A ${service}${chance} -j ${chain}`;
    }),
    ...chains.flatMap((chain, nth) => [
      `-A ${chain} -s ${endpoints[nth]!.split(":")[0]} -j KUBE-MARK-MASQ`,
      `-A ${chain} -m tcp -p tcp -j DNAT --to-destination ${endpoints[nth]}`,
    ]),
  ];
}
