import { assertEquals } from "@std/assert";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { parseCidr } from "../../net/cidr.ts";
import { checkSanity, type SanityContext } from "./config_sanity.ts";

interface Row {
  readonly name: string;
  readonly proxy: Partial<KubeProxyConfiguration>;
  readonly context?: Partial<SanityContext>;
  /** `severity field: start of the problem`. */
  readonly found: readonly string[];
}

const SINGLE: Partial<SanityContext> = { families: ["IPv4"] };
const PRIMARY = ["primary"];
const POD_CIDRS = "spec.podCIDRs of the Node";

const ROWS: readonly Row[] = [
  { name: "finds nothing in a plain configuration", proxy: {}, found: [] },
  {
    name: "advises 'primary' if node ports are open everywhere",
    proxy: { nodePortAddresses: [] },
    found: ["warning nodePortAddresses: it is not set"],
  },
  {
    name: "knows that nftables mode takes 'primary' for unset",
    proxy: { nodePortAddresses: [] },
    context: { mode: "nftables" },
    found: [],
  },
  {
    name: "reports nothing about unset node ports in userspace mode",
    proxy: { nodePortAddresses: [] },
    context: { mode: "userspace" },
    found: [],
  },
  {
    name: "finds node ports of one family next to cluster ranges of both",
    proxy: { nodePortAddresses: ["192.168.0.0/24"], clusterCIDR: "10.0.0.0/8,fd00::/48" },
    found: ["warning nodePortAddresses: other fields name both IP families"],
  },
  {
    name: "finds node ports of one family next to podCIDRs of both",
    proxy: { nodePortAddresses: ["192.168.0.0/24"], detectLocalMode: "NodeCIDR" },
    context: { podCidrs: ["10.0.0.0/24", "fd00::/64"].map(parseCidr) },
    found: ["warning nodePortAddresses: other fields name both IP families"],
  },
  {
    name: "finds node ports of one family next to excluded ranges of the other",
    proxy: {
      nodePortAddresses: ["192.168.0.0/24"],
      ipvs: { ...defaultConfiguration().ipvs, excludeCIDRs: ["fd00::/64"] },
    },
    found: ["warning nodePortAddresses: other fields name both IP families"],
  },
  {
    name: "accepts node ports of one family in a cluster of one family",
    proxy: { nodePortAddresses: ["192.168.0.0/24"], clusterCIDR: "10.0.0.0/8" },
    found: [],
  },
  {
    name: "treats keywords as both families",
    proxy: { nodePortAddresses: ["localhost", "10.0.0.0/8"], clusterCIDR: "10.0.0.0/8,fd00::/48" },
    found: [],
  },
  {
    name: "finds node ports that lack the primary family",
    proxy: { nodePortAddresses: ["2001:db8::/64"] },
    found: ["warning nodePortAddresses: it has no IPv4 range"],
  },
  {
    name: "ends for a clusterCIDR of the other family on a single-stack host",
    proxy: { nodePortAddresses: PRIMARY, clusterCIDR: "fd00::/48" },
    context: SINGLE,
    found: ["fatal clusterCIDR: fd00::/48 has no IPv4 range"],
  },
  {
    name: "accepts a clusterCIDR of the other family if both families run",
    proxy: { nodePortAddresses: PRIMARY, clusterCIDR: "fd00::/48" },
    found: [],
  },
  {
    name: "does not look at clusterCIDR in mode BridgeInterface",
    proxy: {
      nodePortAddresses: PRIMARY,
      clusterCIDR: "fd00::/48",
      detectLocalMode: "BridgeInterface",
    },
    context: SINGLE,
    found: [],
  },
  {
    name: "ends for podCIDRs of the other family, also if both families run",
    proxy: { nodePortAddresses: PRIMARY, detectLocalMode: "NodeCIDR" },
    context: { podCidrs: [parseCidr("fd00::/64")] },
    found: [`fatal ${POD_CIDRS}: fd00::/64 has no IPv4 range`],
  },
  {
    name: "does not look at podCIDRs in mode ClusterCIDR",
    proxy: { nodePortAddresses: PRIMARY },
    context: { podCidrs: [parseCidr("fd00::/64")] },
    found: [],
  },
  {
    name: "finds addresses of a family that does not run",
    proxy: {
      nodePortAddresses: PRIMARY,
      ipvs: { ...defaultConfiguration().ipvs, excludeCIDRs: ["fd00::/64"] },
      healthzBindAddress: "[2001:db8::1]:10256",
      metricsBindAddress: "[::]:10249",
    },
    context: SINGLE,
    found: [
      "warning ipvs.excludeCIDRs: it has no IPv4 range",
      "warning healthzBindAddress: [2001:db8::1]:10256 is not IPv4",
    ],
  },
];

for (const { name, proxy, context, found } of ROWS) {
  Deno.test(`checkSanity() ${name}`, () => {
    const findings = checkSanity(
      { ...defaultConfiguration(), nodePortAddresses: PRIMARY, ...proxy },
      { mode: "iptables", families: ["IPv4", "IPv6"], primary: "IPv4", podCidrs: [], ...context },
    );
    const lines = findings.map(({ severity, field, problem }, index) =>
      `${severity} ${field}: ${problem}`.slice(0, found[index]?.length)
    );
    assertEquals(lines, found);
  });
}
