/**
 * The Services of the benchmark in the layout of kube-proxy 1.36: for each a chain with one rule, which
 * has a map of its own, and one element in each of two containers that all share.
 *
 * @module
 */
import { serviceChainNames } from "../../../backends/netfilter/names.ts";
import { BENCH_PORT } from "../agent_protocol.ts";
import { benchClusterIp, benchEndpoint, benchServiceName, POD_CIDR } from "../bench_services.ts";
import type { TableSize } from "./table_model.ts";

/** Its table of IPv4. */
export const KUBE_PROXY_TABLE = "ip kube-proxy";

const MARK = "meta mark set mark or 0x4000";
const VIP = "ip daddr . meta l4proto . th dport";

const CONTAINERS = [
  "set cluster-ips { type ipv4_addr ; }",
  "set nodeport-ips { type ipv4_addr ; }",
  "set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service ; }",
  "map service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }",
  "map service-nodeports { type inet_proto . inet_service : verdict ; }",
  "map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict ; }",
  "map no-endpoint-nodeports { type inet_proto . inet_service : verdict ; }",
  "map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }",
];

/** Names, hooks and rules of the chains that are always there. */
const CHAINS: readonly (readonly [name: string, hook: string, ...rules: string[]])[] = [
  ["reject-chain", "", "reject"],
  ["services", "", ...[
    `ip daddr @cluster-ips ip saddr != ${POD_CIDR} ${MARK}`,
    `${VIP} vmap @service-ips`,
    "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports",
  ]],
  ["service-endpoints-check", "", `${VIP} vmap @no-endpoint-services`],
  ["nodeport-endpoints-check", "", ...[
    "ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports",
  ]],
  ["firewall-check", "", `${VIP} vmap @firewall-ips`],
  ["cluster-ips-check", "", "ip daddr @cluster-ips reject"],
  ["masquerading", "", ...[
    "mark and 0x4000 != 0 meta mark set mark xor 0x4000 masquerade fully-random",
    "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections " +
    "masquerade fully-random",
  ]],
  ["filter-prerouting-pre-dnat", "filter hook prerouting priority -110", ...[
    "ct state new jump firewall-check",
  ]],
  ["filter-output-pre-dnat", "filter hook output priority -110", ...[
    "ct state new jump firewall-check",
  ]],
  ["filter-input", "filter hook input priority 0", ...[
    "ct state new jump nodeport-endpoints-check",
    "ct state new jump service-endpoints-check",
  ]],
  ["filter-forward", "filter hook forward priority 0", ...[
    "ct state new jump service-endpoints-check",
    "ct state new jump cluster-ips-check",
  ]],
  ["filter-output", "filter hook output priority 0", ...[
    "ct state new jump service-endpoints-check",
    "ct state new jump cluster-ips-check",
  ]],
  ["nat-prerouting", "nat hook prerouting priority -100", "jump services"],
  ["nat-output", "nat hook output priority -100", "jump services"],
  ["nat-postrouting", "nat hook postrouting priority 100", "jump masquerading"],
];

/** Yields the write of its first sync, in pieces. */
export function* kubeProxyFull({ services, endpoints }: TableSize): Generator<string> {
  yield `add table ${KUBE_PROXY_TABLE}\n`;
  yield lines(CONTAINERS.map((text) => text.replace(/^(\S+) /, `add $1 ${KUBE_PROXY_TABLE} `)));
  yield lines(CHAINS.map(([name, hook]) => {
    const head = `add chain ${KUBE_PROXY_TABLE} ${name}`;
    return hook === "" ? head : `${head} { type ${hook} ; }`;
  }));
  yield lines(CHAINS.flatMap(([name, , ...rules]) => rules.map((rule) => ruleLine(name, rule))));
  for (let index = 0; index < services; index++) {
    const chain = chainName(index);
    yield lines([
      `add element ${KUBE_PROXY_TABLE} cluster-ips { ${benchClusterIp(index)} }`,
      `add chain ${KUBE_PROXY_TABLE} ${chain}`,
      `add element ${KUBE_PROXY_TABLE} service-ips { ${vip(index)} : goto ${chain} }`,
      endpointRule(index, endpoints),
    ]);
  }
}

/**
 * Returns its write after a change of one endpoint of one Service. It has listed the table before.
 */
export function kubeProxyPartial(
  changed: number,
  { endpoints, version }: { readonly endpoints: number; readonly version: number },
): string {
  const chain = chainName(changed);
  return lines([
    `add chain ${KUBE_PROXY_TABLE} ${chain}`,
    `flush chain ${KUBE_PROXY_TABLE} ${chain}`,
    endpointRule(changed, endpoints, version),
  ]);
}

function endpointRule(index: number, endpoints: number, version = 0): string {
  const targets = Array.from({ length: endpoints }, (_, nth) => {
    const number = nth === 0 ? (version * endpoints) % 128 : nth;
    return `${nth} : ${benchEndpoint(index, number).replace(":", " . ")}`;
  });
  return ruleLine(
    chainName(index),
    `meta l4proto tcp dnat ip addr . port to numgen random mod ${endpoints} map { ${
      targets.join(" , ")
    } }`,
  );
}

function vip(index: number): string {
  return `${benchClusterIp(index)} . tcp . ${BENCH_PORT}`;
}

/** As long and as different as its names are; they begin with a hash. */
function chainName(index: number): string {
  const name = benchServiceName(index);
  const service = { namespace: "ns", name, port: "http", protocol: "TCP" } as const;
  return `service-${serviceChainNames(service).cluster.slice(-8)}-ns/${name}/tcp/http`;
}

function ruleLine(chain: string, rule: string): string {
  return `add rule ${KUBE_PROXY_TABLE} ${chain} ${rule}`;
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join("");
}
