import { assertEquals } from "@std/assert";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { parseConfiguration } from "./configuration.ts";
import { validateConfiguration } from "./validate.ts";

/**
 * Returns the configuration of a file with only these fields; addresses as `load.ts` completes
 * them.
 */
function configure(fields: Readonly<Record<string, unknown>>): KubeProxyConfiguration {
  const { configuration, problems } = parseConfiguration({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    healthzBindAddress: "0.0.0.0:10256",
    metricsBindAddress: "127.0.0.1:10249",
    ...fields,
  });
  assertEquals(problems, []);
  return configuration!;
}

const RIGHT: readonly Readonly<Record<string, unknown>>[] = [
  {},
  { bindAddress: "::" },
  { bindAddress: "010.0.0.1" },
  { iptables: { syncPeriod: "1s", minSyncPeriod: "1s" } },
  { ipvs: { syncPeriod: "-1s" } },
  { nftables: { masqueradeBit: 99 } },
  { mode: "iptables", ipvs: { excludeCIDRs: ["not one"] } },
  { clusterCIDR: "10.0.0.0/8,fd00::/8" },
  { clusterCIDR: "nonsense", detectLocalMode: "NodeCIDR" },
  { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cni0" } },
  { nodePortAddresses: ["primary"] },
  { nodePortAddresses: ["0.0.0.0/0", "::/0"] },
  { oomScoreAdj: -1000 },
  { networkPolicy: { enabled: true, mode: "nftables", start: "closed", deny: "drop" } },
];

Deno.test("validateConfiguration() accepts everything that kube-proxy accepts", () => {
  for (const fields of RIGHT) {
    assertEquals(validateConfiguration(configure(fields)), [], JSON.stringify(fields));
  }
});

const WRONG: readonly [fields: Readonly<Record<string, unknown>>, ...paths: string[]][] = [
  [{ clientConnection: { burst: -1 } }, "clientConnection.burst"],
  [{ logging: { verbosity: -1 } }, "logging.verbosity"],
  [{ logging: { flushFrequency: "-1s" } }, "logging.flushFrequency"],
  [
    { logging: { format: "json", vmodule: [{ filePattern: "a", verbosity: 1 }] } },
    "logging.vmodule",
  ],
  [{ hostnameOverride: "  " }, "hostnameOverride"],
  [{ bindAddress: "10.0.0.1:80" }, "bindAddress"],
  [{ healthzBindAddress: "localhost:1" }, "healthzBindAddress"],
  [{ metricsBindAddress: "0.0.0.0:70000" }, "metricsBindAddress"],
  [{ iptables: { masqueradeBit: -1 } }, "iptables.masqueradeBit"],
  [{ mode: "nftables", nftables: { masqueradeBit: 32 } }, "nftables.masqueradeBit"],
  [{ mode: "nftables", nftables: { minSyncPeriod: "1m" } }, "nftables.minSyncPeriod"],
  [{ mode: "ipvs", ipvs: { syncPeriod: "-1s" } }, "ipvs.syncPeriod"],
  [{ mode: "ipvs", ipvs: { tcpTimeout: "-1s" } }, "ipvs.tcpTimeout"],
  [
    { mode: "ipvs", ipvs: { excludeCIDRs: ["10.0.0.0/8", "x", "y"] } },
    "ipvs.excludeCIDRs.1",
    "ipvs.excludeCIDRs.2",
  ],
  [{ configSyncPeriod: "-1s" }, "configSyncPeriod"],
  [{ detectLocalMode: "InterfaceNamePrefix" }, "detectLocal.interfaceNamePrefix"],
  [{ clusterCIDR: "10.0.0.0/8,fd00::/8,fd01::/16" }, "clusterCIDR"],
  [{ nodePortAddresses: ["primary", "10.0.0.0/8"] }, "nodePortAddresses.0"],
  [
    { networkPolicy: { mode: "ipvs", start: "close", deny: "accept" } },
    "networkPolicy.mode",
    "networkPolicy.start",
    "networkPolicy.deny",
  ],
  [
    { networkPolicy: { logPerMinute: 6001, logGroup: -1 } },
    "networkPolicy.logPerMinute",
    "networkPolicy.logGroup",
  ],
  [{ conntrack: { maxPerCore: -1, min: -1 } }, "conntrack.maxPerCore", "conntrack.min"],
];

Deno.test("validateConfiguration() names the field of each problem", () => {
  for (const [fields, ...paths] of WRONG) {
    const found = validateConfiguration(configure(fields)).map(({ path }) => path);
    assertEquals(found, paths, JSON.stringify(fields));
  }
});

Deno.test("validateConfiguration() collects all problems in the order of the fields", () => {
  const fields = { oomScoreAdj: 5000, bindAddress: "x", clientConnection: { burst: -1 } };
  assertEquals(validateConfiguration(configure(fields)).map(({ path }) => path), [
    "clientConnection.burst",
    "bindAddress",
    "oomScoreAdj",
  ]);
});

Deno.test("validateConfiguration() names the words that nodePortAddresses may have", () => {
  const [problem] = validateConfiguration(configure({ nodePortAddresses: ["primray"] }));
  assertEquals(
    problem?.message,
    "Expected a CIDR such as 192.0.2.0/24 or one of the words primary, localhost, all, " +
      "found 'primray'; did you mean 'primary'?",
  );
});
