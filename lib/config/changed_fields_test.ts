import { assertEquals } from "@std/assert";
import { changedFields } from "./changed_fields.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { defaultConfiguration } from "./configuration_schema.ts";

const BEFORE = defaultConfiguration();

Deno.test("changedFields() separates fields that a running process applies from those that need a start", () => {
  const after: KubeProxyConfiguration = {
    ...BEFORE,
    bindAddress: "::",
    clusterCIDR: "10.0.0.0/8",
    detectLocal: { bridgeInterface: "cni0", interfaceNamePrefix: "veth" },
    nodePortAddresses: ["primary"],
    featureGates: { AllAlpha: true },
    logging: { ...BEFORE.logging, verbosity: 4, format: "json" },
    iptables: { ...BEFORE.iptables, masqueradeAll: true, syncPeriod: 1 },
  };
  assertEquals(changedFields(BEFORE, after, "iptables"), {
    applicable: [
      "logging.verbosity",
      "iptables.masqueradeAll",
      "detectLocal.bridgeInterface",
      "detectLocal.interfaceNamePrefix",
      "clusterCIDR",
      "nodePortAddresses",
    ],
    others: ["featureGates.AllAlpha", "logging.format", "bindAddress", "iptables.syncPeriod"],
  });
});

Deno.test("changedFields() applies the denial of policies, and restarts for their source", () => {
  const policy = (fields: Partial<KubeProxyConfiguration["networkPolicy"]>) => ({
    ...BEFORE,
    networkPolicy: { ...BEFORE.networkPolicy, ...fields },
  });
  const on = policy({ enabled: true });
  const after = policy({
    enabled: true,
    mode: "iptables",
    start: "closed",
    deny: "drop",
    logPerMinute: 9,
    logGroup: 9,
    cutConnections: false,
    kubeconfig: "/k",
  });
  assertEquals(changedFields(on, after, "userspace"), {
    applicable: ["start", "deny", "logPerMinute", "cutConnections"].map((field) =>
      `networkPolicy.${field}`
    ),
    others: ["mode", "logGroup", "kubeconfig"].map((field) => `networkPolicy.${field}`),
  });
  assertEquals(changedFields(BEFORE, on, "nftables").others, ["networkPolicy.enabled"]);
  const off = policy({ mode: "iptables", deny: "drop" });
  assertEquals(changedFields(BEFORE, off, "nftables"), { applicable: [], others: [] });
});

Deno.test("changedFields() ignores blocks of other modes, and unread fields", () => {
  const after: KubeProxyConfiguration = {
    ...BEFORE,
    portRange: "1-2",
    winkernel: { ...BEFORE.winkernel, sourceVip: "10.0.0.1" },
    iptables: { ...BEFORE.iptables, masqueradeAll: true },
    ipvs: { ...BEFORE.ipvs, scheduler: "sh" },
    nftables: { ...BEFORE.nftables, masqueradeAll: true },
  };
  const fieldsIn = (mode: "iptables" | "ipvs" | "nftables" | "userspace") => {
    const { applicable, others } = changedFields(BEFORE, after, mode);
    return [...applicable, ...others];
  };
  assertEquals(fieldsIn("nftables"), ["nftables.masqueradeAll"]);
  assertEquals(fieldsIn("ipvs"), ["iptables.masqueradeAll", "ipvs.scheduler"]);
  assertEquals(fieldsIn("userspace"), ["iptables.masqueradeAll"]);
});

Deno.test("changedFields() has no field of routing that a running process could apply", () => {
  const routing = (fields: Partial<KubeProxyConfiguration["routing"]>) => ({
    ...BEFORE,
    routing: { ...BEFORE.routing, ...fields },
  });
  const pools = ["192.0.2.0/24"];
  assertEquals(changedFields(BEFORE, routing({ pools }), "nftables").others, []);
  const on = routing({ enabled: true });
  const after = routing({ enabled: true, pools });
  assertEquals(changedFields(on, after, "nftables"), {
    applicable: [],
    others: ["routing.pools"],
  });
});
