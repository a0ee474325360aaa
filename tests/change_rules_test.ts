/**
 * Tests the names of rules that a change affects, in every mode, and their form in the log.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ChangeLine, ChangesReport } from "../lib/tools/changes/change_entry.ts";
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
    ["2 rule nat KUBE-VIP-0a600010-28", "3 rule nat KUBE-NODEPORTS"],
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
  return { family: "IPv4", backend, services: { plan } };
}

/** A log of one entry, with these ServicePorts. */
function reportOf(...servicePorts: readonly string[]): ChangesReport {
  const lines = servicePorts.map((item) =>
    ({ text: `-> ${item} added`, tone: "effect", item }) as const
  );
  return {
    entries: [{
      ...{ kind: "sync", sequence: 1, at: "2026-11-22T04:58:48.742Z", family: "IPv4" },
      outcome: "applied",
      lines,
    }],
    forgotten: 0,
    syncs: [],
  };
}

/** The lines about rules, or `undefined`, for each effect. */
async function rulesOf(family: ServedFamily, report: ChangesReport) {
  const { entries } = await nameRules({ clock: new FakeClock(), families: [family] }, report);
  return entries.flatMap(({ lines }) =>
    lines.flatMap(({ item }, index) => item === undefined ? [] : [nextDetail(lines[index + 1])])
  );
}

function nextDetail(line: ChangeLine | undefined): string | undefined {
  return line?.tone === "detail" ? line.text : undefined;
}

for (const mode of BACKEND_MODES) {
  Deno.test(`ruleNames() names the rules of a ServicePort alone in mode ${mode}`, () => {
    const { backend, services: { plan } } = served(mode);
    const texts = SERVICES.slice(0, 2).map((service) =>
      ruleNames(plan, service, backend).map(({ object, name, count }) =>
        `${count} ${object} ${name}`
      )
    );
    assertEquals(texts, [...EXPECTED[mode]]);
  });
}

Deno.test("nameRules() shows some of the names, and none for a removed ServicePort", async () => {
  const [web, gone] = await rulesOf(served("iptables"), reportOf("ns/web/TCP", "ns/gone/TCP"));
  assert(/^by nat KUBE-VIP-[0-9a-f]+-\d+ \(\d rules\), /.test(web!), web);
  assertEquals(gone, "now without rules");
});

Deno.test("nameRules() handles a limited number of ServicePorts, the newest first", async () => {
  const many = SERVICES.map(({ key }) => reportOf(key).entries[0]!);
  const report = { ...reportOf(), entries: many };
  const named = (await rulesOf(served("userspace"), report)).map((each) => each !== undefined);
  assertEquals(named, SERVICES.map((_, index) => index >= SERVICES.length - MOST_NAMED));
});

Deno.test("nameRules() leaves out names if a mode fails", async () => {
  const { backend: _, ...rest } = served("iptables");
  const report = reportOf("ns/web/TCP");
  const fail = () => {
    throw new Error("not now");
  };
  assertEquals(await rulesOf({ ...rest, backend: { explain: fail } }, report), [undefined]);
});

Deno.test("ruleNames() leaves out objects that other ServicePorts use too", () => {
  const carriers = [
    { object: "rule", name: "X", text: "-d 10.96.0.0/28 -j Y", isShared: true },
    { object: "rule", name: "X", text: "-d 10.96.0.16/32 -j DROP" },
  ];
  const names = ruleNames(testProxyPlan(SERVICES), SERVICES[0]!, { explain: () => ({ carriers }) });
  assertEquals(names, [{ object: "rule", name: "X", count: 1 }]);
});
