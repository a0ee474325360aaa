import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { API_VERSION, CONFIGURATION_FIELDS, KIND, parseConfiguration } from "./configuration.ts";
import { encodeConfiguration } from "./encode_configuration.ts";
import { formatDuration } from "../api/duration.ts";

const HEAD = { apiVersion: API_VERSION, kind: KIND };
const time = fc.integer({ min: 1, max: 10 ** 9 }).map(formatDuration);

const CONFIGURATIONS = fc.record({
  clusterCIDR: fc.string(),
  nodePortAddresses: fc.array(fc.string()),
  oomScoreAdj: fc.integer({ min: -1000, max: 1000 }),
  configSyncPeriod: time,
  clientConnection: fc.record({ qps: fc.constantFrom(-1, 0.5, 7), burst: fc.nat(1000) }),
  iptables: fc.record({ syncPeriod: time, minSyncPeriod: time, masqueradeAll: fc.boolean() }),
  conntrack: fc.record({ udpTimeout: time, tcpBeLiberal: fc.boolean() }),
  logging: fc.record({ flushFrequency: time, verbosity: fc.nat(10) }),
  networkPolicy: fc.record({
    enabled: fc.boolean(),
    deny: fc.constantFrom("reject", "drop"),
    logPerMinute: fc.nat(100),
  }),
  routing: fc.record({
    enabled: fc.boolean(),
    pools: fc.array(fc.oneof(
      fc.string(),
      fc.record({
        name: fc.string(),
        addresses: fc.array(fc.string()),
        serviceSelector: fc.record({ matchLabels: fc.constant({ team: "web" }) }),
      }),
    )),
    bgp: fc.record({
      peers: fc.array(fc.record({ address: fc.string(), as: fc.nat(), bfd: fc.boolean() })),
      imports: fc.record({ external: fc.array(fc.string()) }),
    }),
  }),
});

Deno.test("encodeConfiguration() gives a text that is read as the same configuration", () => {
  fc.assert(fc.property(CONFIGURATIONS, (fields) => {
    const { configuration } = parseConfiguration({ ...HEAD, ...fields, mode: "iptables" });
    assert(configuration);
    const encoded = JSON.parse(JSON.stringify(encodeConfiguration(configuration, "iptables")));
    assertEquals(parseConfiguration(encoded), { configuration, problems: [] });
  }));
});

Deno.test("encodeConfiguration() names every field of the file", () => {
  const { configuration } = parseConfiguration({
    ...HEAD,
    networkPolicy: { enabled: true },
    routing: { enabled: true },
  });
  const encoded = encodeConfiguration(configuration!, "ipvs");
  assertEquals(Object.keys(encoded).sort(), Object.keys(CONFIGURATION_FIELDS).sort());
});

Deno.test("encodeConfiguration() gives only blocks of the mode a period, and an empty list as null", () => {
  const periods = { syncPeriod: "7s", minSyncPeriod: "3s" };
  const block = { ...periods, masqueradeAll: true };
  const { configuration } = parseConfiguration({
    ...{ ...HEAD, iptables: block, nftables: block, ipvs: { ...periods, excludeCIDRs: [] } },
  });
  const none = { syncPeriod: "0s", minSyncPeriod: "0s" };
  const blocks = ["iptables", "ipvs", "nftables"] as const;
  for (
    const [mode, ...used] of [
      ["iptables", "iptables"],
      ["ipvs", "ipvs"],
      ["nftables", "nftables"],
      ["auto", "iptables", "nftables"],
    ] as const
  ) {
    const encoded = encodeConfiguration(configuration!, mode) as Record<string, object>;
    const found = blocks.filter((name) => {
      const { syncPeriod, minSyncPeriod } = encoded[name] as typeof none;
      const isUsed = used.some((each) => each === name);
      assertEquals({ syncPeriod, minSyncPeriod }, isUsed ? periods : none, `${mode} ${name}`);
      return "masqueradeAll" in encoded[name]! && encoded[name].masqueradeAll;
    });
    assertEquals(found, mode === "ipvs" ? ["iptables"] : [...used]);
    assertEquals(encoded.nodePortAddresses, null);
    assertEquals("excludeCIDRs" in encoded.ipvs! && encoded.ipvs.excludeCIDRs, null);
  }
});

Deno.test("encodeConfiguration() adds nothing to kube-proxy's fields by default", () => {
  const { configuration } = parseConfiguration(HEAD);
  const encoded = encodeConfiguration(configuration!, "ipvs");
  assertEquals(["networkPolicy", "routing"].filter((block) => block in encoded), []);
});
