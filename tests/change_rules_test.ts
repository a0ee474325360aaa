/**
 * Tests the names of rules that a change affects, in every mode, and their form in the log.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ChangesReport, SyncEntry } from "../lib/tools/changes/change_entry.ts";
import { renderChanges } from "../lib/tools/changes/changes_view.ts";
import {
  MOST_NAMED,
  nameRules,
  ruleNames,
  type ServedFamily,
} from "../lib/tools/changes/name_rules.ts";
import { parseIpAddress } from "../lib/net/ip_address.ts";
import { BACKEND_MODES, type BackendMode } from "../lib/proxy/backend.ts";
import type { ServicePlan } from "../lib/proxy/service_plan.ts";
import { explainStage } from "./packet_flow/explain_executor.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import {
  testEndpoint,
  testForward,
  testProxyPlan,
  testServicePlan,
} from "./support/builders/service_plans.ts";

const ENDPOINTS = ["10.180.0.1:8080", "10.180.0.2:8080"];
const FORWARD = {
  to: ENDPOINTS,
  internal: testForward(...ENDPOINTS),
  external: testForward(...ENDPOINTS),
  reachable: ENDPOINTS.map((text) => testEndpoint(text)),
  endpoints: ENDPOINTS.map((text) => testEndpoint(text)),
};
const NODE = parseIpAddress("192.168.0.2");

/** One with a node port, and enough neighbours that they share chains. */
const SERVICES = [
  testServicePlan({ name: "web", clusterIp: "10.96.0.16", nodePort: 30080, ...FORWARD }),
  testServicePlan({ name: "empty", clusterIp: "10.96.0.17" }),
  ...Array.from(
    { length: 40 },
    (_, index) =>
      testServicePlan({ name: `other-${index}`, clusterIp: `10.96.0.${20 + index}`, ...FORWARD }),
  ),
];

/** The rules of `web` and of `empty` alone, with their number. */
const EXPECTED: Readonly<Record<BackendMode, readonly [web: string[], empty: string[]]>> = {
  iptables: [
    ["2 rule nat KUBE-VIP-0a600000-26", "3 rule nat KUBE-NODEPORTS"],
    ["1 rule filter KUBE-SERVICES"],
  ],
  nftables: [[
    "1 map element service-ips",
    "2 map element endpoints",
    "1 map element node-ports",
    "2 map element node-port-endpoints",
  ], ["1 map element service-ips"]],
  ipvs: [[
    "1 ip set entry KUBE-CLUSTER-IP",
    "1 ip set entry KUBE-SERVED",
    "1 address 10.96.0.16",
    "1 virtual server 10.96.0.16:80/TCP",
    "1 real server 10.96.0.16:80/TCP 10.180.0.1:8080",
    "1 real server 10.96.0.16:80/TCP 10.180.0.2:8080",
    "1 ip set entry KUBE-NODE-PORT-TCP",
    "1 virtual server 192.168.0.2:30080/TCP",
    "1 real server 192.168.0.2:30080/TCP 10.180.0.1:8080",
    "1 real server 192.168.0.2:30080/TCP 10.180.0.2:8080",
  ], [
    "1 ip set entry KUBE-CLUSTER-IP",
    "1 ip set entry KUBE-SERVED",
    "1 address 10.96.0.17",
    "1 virtual server 10.96.0.17:80/TCP",
  ]],
  userspace: [
    ["1 socket 10.96.0.16:80/TCP", "1 socket 192.168.0.2:30080/TCP"],
    ["1 no socket 10.96.0.17:80/TCP"],
  ],
};

function served(mode: BackendMode, services: readonly ServicePlan[] = SERVICES): ServedFamily {
  const { backend } = explainStage(mode, { name: "none", services: [] }, "IPv4");
  const plan = testProxyPlan(services, {
    shared: { nodePortAddresses: [NODE], interfaceAddresses: [NODE] },
  });
  return { family: "IPv4", backend, pipeline: { plan } };
}

/** A log of one entry, with these ServicePorts. */
function reportOf(...servicePorts: readonly string[]): ChangesReport {
  const entry: SyncEntry = {
    ...{ kind: "sync", sequence: 1, at: "2026-11-22T04:58:48.742Z", family: "IPv4" },
    ...{ outcome: "applied", causes: [], moreCauses: {}, moreEffects: {}, operations: {} },
    ...{ syncs: 1, queuedMs: 0, planMs: 0, applyMs: 0, totalMs: 1, failures: 0 },
    effects: servicePorts.map((servicePort) => ({ servicePort, action: "added", details: [] })),
  };
  return { entries: [entry], forgotten: 0, syncs: [] };
}

async function effectsOf(family: ServedFamily, report: ChangesReport) {
  const named = await nameRules({ clock: new FakeClock(), families: [family] }, report);
  return named.entries.flatMap((entry) => entry.kind === "sync" ? entry.effects : []);
}

for (const mode of BACKEND_MODES) {
  Deno.test(`nameRules() names the rules of a ServicePort alone in mode ${mode}`, async () => {
    const effects = await effectsOf(served(mode), reportOf("ns/web/TCP", "ns/empty/TCP"));
    const texts = effects.map(({ rules = [] }) =>
      rules.map(({ object, name, count }) => `${count} ${object} ${name}`)
    );
    assertEquals(texts, [...EXPECTED[mode]]);
  });
}

Deno.test("nameRules() has no rules for a removed ServicePort", async () => {
  const report = reportOf("ns/gone/TCP");
  const [effect] = await effectsOf(served("nftables"), report);
  assertEquals(effect?.rules, []);
  const entries =
    (await nameRules({ clock: new FakeClock(), families: [served("nftables")] }, report))
      .entries;
  const text = renderChanges({ ...report, entries }, { timeZone: "UTC" });
  assert(text.includes("now without rules"), text);
});

Deno.test("nameRules() handles a limited number of ServicePorts, the newest first", async () => {
  const many = SERVICES.map(({ key }) => reportOf(key).entries[0]!);
  const report = { ...reportOf(), entries: many };
  const effects = await effectsOf(served("userspace"), report);
  const named = effects.map(({ rules }) => rules !== undefined);
  assertEquals(named, SERVICES.map((_, index) => index >= SERVICES.length - MOST_NAMED));
});

Deno.test("nameRules() leaves out names if a mode fails", async () => {
  const { backend: _, ...rest } = served("iptables");
  const report = reportOf("ns/web/TCP");
  const fail = () => {
    throw new Error("not now");
  };
  const [effect] = await effectsOf({ ...rest, backend: { explain: fail } }, report);
  assertEquals(effect?.rules, undefined);
});

Deno.test("ruleNames() leaves out objects that other ServicePorts use too", () => {
  const carriers = [
    { object: "rule", name: "X", text: "-d 10.96.0.0/28 -j Y", isShared: true },
    { object: "rule", name: "X", text: "-d 10.96.0.16/32 -j DROP" },
  ];
  const names = ruleNames(testProxyPlan(SERVICES), SERVICES[0]!, { explain: () => ({ carriers }) });
  assertEquals(names, [{ object: "rule", name: "X", count: 1 }]);
});

Deno.test("renderChanges() shows some of the names of rules", () => {
  const rules = [
    { object: "rule", name: "nat KUBE-VIP-0a600010-28", count: 3 },
    { object: "ip set entry", name: "KUBE-CLUSTER-IP", count: 2 },
    { object: "address", name: "10.96.0.16", count: 1 },
    ...[1, 2, 3].map((count) => ({ object: "map element", name: "endpoints", count })),
  ];
  const [entry] = reportOf("ns/web/TCP").entries;
  assert(entry?.kind === "sync");
  const effects = entry.effects.map((effect) => ({ ...effect, rules }));
  const report = { ...reportOf(), entries: [{ ...entry, effects }] };
  const text = renderChanges(report, { timeZone: "UTC" });
  for (const line of text.split("\n")) assert(line.length <= 80, line);
  const words = text.replaceAll(/\s+/g, " ");
  assert(
    words.includes(
      "by nat KUBE-VIP-0a600010-28 (3 rules), KUBE-CLUSTER-IP (2 ip set entries), " +
        "10.96.0.16 (address), endpoints (map element) and 2 more",
    ),
    text,
  );
});
