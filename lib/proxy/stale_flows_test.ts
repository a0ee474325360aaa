import { assert, assertEquals } from "@std/assert";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import { type TrackedFlow, TrackedFrontends } from "./stale_flows.ts";

const NODE = "192.168.0.1";
const VIP = "10.96.0.10:53";
const TERMINATING = { ready: false, serving: true, terminating: true };
const NOT_SERVING = { ready: false, serving: false };
/** Published before it is ready: `publishNotReadyAddresses`. */
const PUBLISHED = { ready: true, serving: false };

/** A step of a row: the existing Services. */
type Services = readonly TestServicePlan[];

function dns(
  endpoints: readonly (string | Endpoint)[],
  rest: TestServicePlan = {},
): TestServicePlan {
  return {
    name: "dns",
    protocol: "UDP",
    clusterIp: "10.96.0.10",
    port: 53,
    endpoints: endpoints.map((each) => typeof each === "string" ? testEndpoint(each) : each),
    ...rest,
  };
}

const A = "10.1.0.1:5353";
const B = "10.1.0.2:5353";

function split(text: string) {
  const colon = text.lastIndexOf(":");
  return [
    parseIpAddress(text.slice(0, colon).replace(/^\[|\]$/g, "")),
    parsePort(text.slice(colon + 1)),
  ] as const;
}

/** `10.96.0.10:53 10.1.0.1:5353`: the destination of the client, and the endpoint that answers. */
function parseFlow(text: string): TrackedFlow {
  const [to = "", from = ""] = text.split(" ");
  const [destination, destinationPort] = split(to);
  const [replySource, replySourcePort] = split(from);
  return { destination, destinationPort, replySource, replySourcePort };
}

function planOf(services: Services) {
  return testProxyPlan(services.map(testServicePlan), {
    shared: { nodePortAddresses: [parseIpAddress(NODE)] },
  });
}

/** Goes from each step to the next, then judges flows; every step but the last was looked after. */
async function staleAfter(steps: readonly Services[], flows: readonly string[]) {
  const frontends = new TrackedFrontends("UDP");
  let previous: ReturnType<typeof planOf> | undefined;
  for (const services of steps) {
    frontends.take();
    const plan = planOf(services);
    frontends.note(plan, testPlanChanges(plan, previous));
    previous = plan;
  }
  await frontends.search(frontends.take(), () => undefined);
  return flows.filter((flow) => {
    const parsed = parseFlow(flow);
    const stale = frontends.isStale(parsed);
    assert(!stale || frontends.ports.has(parsed.destinationPort), "its port is looked for");
    return stale;
  });
}

/** The steps, flows that are stale after them, and flows that are kept, with commas between. */
type Row = readonly [name: string, steps: readonly Services[], stale: string, kept: string];

/** control-plane §4.8, row by row; then what upstream lacks. */
const ROWS: readonly Row[] = [
  ["an endpoint is removed while others remain", [[dns([A, B])], [dns([B])]], "VIP A", "VIP B"],
  [
    "an endpoint changes its port and keeps its address",
    [[dns([A])], [dns(["10.1.0.1:5454"])]],
    "VIP A",
    "VIP 10.1.0.1:5454",
  ],
  [
    "from no endpoint to some: flows that no rule turned end",
    [[dns([])], [dns([A])]],
    "VIP VIP",
    "VIP A",
  ],
  [
    "from some endpoints to none: flows to the dead one end (upstream keeps them)",
    [[dns([A])], [dns([])]],
    "VIP A, VIP VIP",
    "10.96.0.11:53 A",
  ],
  [
    "a Service is deleted (upstream keeps its flows)",
    [[dns([A], { externalIps: ["203.0.113.1"], nodePort: 30053 })], []],
    "VIP A, 203.0.113.1:53 A, NODE:30053 A",
    "10.96.0.10:54 A",
  ],
  [
    "a port changes (upstream keeps the flows to the old one)",
    [[dns([A])], [dns([A], { port: 54 })]],
    "VIP A",
    "10.96.0.10:54 A",
  ],
  [
    "a cluster IP changes (upstream keeps the flows to the old one)",
    [[dns([A])], [dns([A], { clusterIp: "10.96.0.11" })]],
    "VIP A",
    "10.96.0.11:53 A",
  ],
  [
    "a node port changes (upstream keeps the flows to the old one)",
    [[dns([A], { nodePort: 30053 })], [dns([A], { nodePort: 30054 })]],
    "NODE:30053 A",
    "NODE:30054 A, VIP A",
  ],
  [
    "an endpoint that is published though not ready keeps its flows (upstream ends them)",
    [[dns([testEndpoint(A, PUBLISHED)])], [dns([testEndpoint(A, PUBLISHED), B])]],
    "VIP 10.1.0.3:5353",
    "VIP A",
  ],
  [
    "a node port is one on this node's addresses only (upstream: on any)",
    [[dns([A], { nodePort: 30053 })]],
    "NODE:30053 10.1.0.9:5353",
    "8.8.8.8:30053 8.8.8.8:30053, NODE:30054 10.1.0.9:5353",
  ],
  [
    "TCP and SCTP are never looked at",
    [[
      dns([A], { protocol: "TCP", nodePort: 30053 }),
      dns([A], { name: "s", protocol: "SCTP", clusterIp: "10.96.0.12" }),
    ]],
    "",
    "VIP B, NODE:30053 B, 10.96.0.12:53 B",
  ],
  [
    "at a restart only wrong flows end",
    [[dns([A, B], { loadBalancerVips: ["203.0.113.9"] })]],
    "VIP 10.1.0.3:5353, 203.0.113.9:53 203.0.113.9:53",
    "VIP A, VIP B, 203.0.113.9:53 A",
  ],
  [
    "an endpoint that is ending keeps its flows as long as it serves",
    [[dns([A, B])], [dns([testEndpoint(A, TERMINATING), B])]],
    "",
    "VIP A",
  ],
  [
    "an endpoint that serves no longer loses its flows",
    [[dns([A, B])], [dns([testEndpoint(A, NOT_SERVING), B])]],
    "VIP A",
    "VIP B",
  ],
  [
    "an endpoint that policy would not choose keeps its flows, as upstream",
    [[dns([])], [dns([A], { internal: { kind: "drop" }, external: { kind: "drop" } })]],
    "VIP B",
    "VIP A",
  ],
  [
    "an address that went over to another Service belongs to that one",
    [[dns([A], { externalIps: ["203.0.113.1"] })], [
      dns([A]),
      dns([B], { name: "other", clusterIp: "10.96.0.12", externalIps: ["203.0.113.1"] }),
    ]],
    "203.0.113.1:53 A",
    "203.0.113.1:53 B, VIP A",
  ],
  [
    "an address that two Services claim keeps the flows of its owner",
    [[
      dns([A], { externalIps: ["203.0.113.1"] }),
      dns([B], { name: "other", clusterIp: "10.96.0.12", externalIps: ["203.0.113.1"] }),
    ]],
    "203.0.113.1:53 10.1.0.3:5353, 203.0.113.1:53 B",
    "203.0.113.1:53 A",
  ],
  [
    "a Service that changes to TCP gives its UDP frontend up",
    [[dns([A])], [dns([A], { protocol: "TCP" })]],
    "VIP A",
    "",
  ],
  [
    "IPv6",
    [[dns(["[fd00::1]:53"], { clusterIp: "fd00:96::a" })], [dns([], { clusterIp: "fd00:96::a" })]],
    "[fd00:96::a]:53 [fd00::1]:53",
    "[fd00:96::b]:53 [fd00::1]:53",
  ],
];

const NAMED: Readonly<Record<string, string>> = { VIP, A, B };

/** Reads `VIP A, NODE:30053 A`. */
function flowsOf(text: string): readonly string[] {
  const flows = text.split(", ").filter((flow) => flow !== "");
  return flows.map((flow) =>
    flow.replaceAll(/\b(?:VIP|A|B)\b/g, (name) => NAMED[name]!).replace("NODE", NODE)
  );
}

for (const [name, steps, staleText, keptText] of ROWS) {
  const [stale, kept] = [flowsOf(staleText), flowsOf(keptText)];
  Deno.test(`TrackedFrontends: ${name}`, async () => {
    assertEquals(await staleAfter(steps, [...stale, ...kept]), stale);
  });
}

Deno.test("TrackedFrontends of TCP has suspects only where a frontend is new", async () => {
  const frontends = new TrackedFrontends("TCP");
  const web = (endpoints: Parameters<typeof dns>[0], spec: Parameters<typeof dns>[1] = {}) =>
    dns(endpoints, { protocol: "TCP", ...spec });
  const others = Array.from(
    { length: 300 },
    (_, index) =>
      web([A], { name: `tcp-${index}`, clusterIp: `10.97.${index >> 8}.${index & 255}` }),
  );
  let previous = planOf([...others, dns([A], { name: "udp", clusterIp: "10.96.0.99" })]);
  frontends.note(previous, testPlanChanges(previous));
  assertEquals(frontends.take().keys.size, 300, "at the first sync everything is suspect");
  const change = (...services: Services) => {
    const plan = planOf([...others, ...services]);
    frontends.note(plan, testPlanChanges(plan, previous));
    previous = plan;
    return frontends.take();
  };
  const suspects = change(web([A]));
  assertEquals([...suspects.keys], ["ns/dns/TCP"]);
  let pauses = 0;
  await frontends.search(suspects, () => void pauses++);
  assertEquals(pauses, 0, "no walk over all Services");
  const isStale = [VIP, A, B].map((answering) =>
    frontends.isStale(parseFlow(`${VIP} ${answering}`))
  );
  assertEquals(isStale, [true, false, true], "what leads past the Service");
  assertEquals(change(web([A, B])).keys.size, 0, "another endpoint");
  assertEquals(change(web([A, B], { nodePort: 30053 })).keys.size, 1, "a new node port");
  assertEquals(change().keys.size, 0, "a Service that was deleted");
  assert(!frontends.pending);
});

Deno.test("TrackedFrontends.giveBack() keeps suspects for the next try, with those since", async () => {
  const frontends = new TrackedFrontends("UDP");
  const steps = [
    planOf([dns([A]), dns([A], { name: "b", clusterIp: "10.96.0.12" })]),
    planOf([
      dns([A], { name: "b", clusterIp: "10.96.0.12" }),
    ]),
  ] as const;
  frontends.note(steps[0], testPlanChanges(steps[0]));
  frontends.take();
  frontends.note(steps[1], testPlanChanges(steps[1], steps[0]));
  const failed = frontends.take();
  assert(!frontends.pending);
  const last = planOf([]);
  frontends.note(last, testPlanChanges(last, steps[1]));
  frontends.giveBack(failed);
  await frontends.search(frontends.take(), () => undefined);
  assert(frontends.isStale(parseFlow(`${VIP} ${A}`)));
  assert(frontends.isStale(parseFlow(`10.96.0.12:53 ${A}`)));
});

Deno.test("TrackedFrontends.search() spares flows that appear while the search begins, and after", async () => {
  const frontends = new TrackedFrontends("UDP");
  const others = Array.from(
    { length: 300 },
    (_, n) => dns([], { name: `dns-${n}`, clusterIp: `10.97.${n >> 8}.${n & 255}` }),
  );
  const [both, none, announced, noted] = [[A, B], [], [A], [B]].map((endpoints) =>
    planOf([dns(endpoints), ...others])
  );
  frontends.note(both!, testPlanChanges(both!));
  frontends.take();
  frontends.note(none!, testPlanChanges(none!, both!));
  frontends.suspectAll();
  let pauses = 0;
  await frontends.search(frontends.take(), () => {
    if (pauses++ === 0) frontends.expect(announced!, testPlanChanges(announced!, none!));
    return undefined;
  });
  assertEquals([frontends.expecting, frontends.isGuess], [true, false]);
  const flows = [A, B].map((endpoint) => parseFlow(`${VIP} ${endpoint}`));
  assertEquals(flows.map((flow) => frontends.isStale(flow)), [false, true]);
  assert(frontends.isGuess);
  frontends.note(noted!, testPlanChanges(noted!, none!));
  assertEquals(flows.map((flow) => frontends.isStale(flow)), [true, false], "A never came");
  assert(!frontends.expecting);
  frontends.expect(noted!, testPlanChanges(noted!, none!));
  await frontends.search(frontends.take(), () => undefined);
  assertEquals(flows.map((flow) => frontends.isStale(flow)), [true, false]);
  assert(!frontends.isGuess, "what is announced is there already");
});

Deno.test("TrackedFrontends forgets the oldest former frontends, if they can never be cleaned", () => {
  const frontends = new TrackedFrontends("UDP");
  for (let index = 0; index < 10_005; index++) {
    const clusterIp = `10.${100 + Math.floor(index / 65_536)}.${(index >> 8) & 255}.${index & 255}`;
    const plan = planOf([dns([], { clusterIp })]);
    frontends.note(plan, {
      upserted: new Set(plan.services.keys()),
      removed: new Map(),
      shared: false,
      everything: false,
    });
  }
  const { gone } = frontends.take();
  assertEquals(gone.size, 10_000);
  assert(gone.has("10.100.39.19:53") && !gone.has("10.100.0.0:53"));
});

Deno.test("ownerOf() names the owner of a flow, and the former owner of a deleted one", async () => {
  const frontends = new TrackedFrontends("UDP");
  const [first, second] = [
    planOf([dns([A], { nodePort: 30053 }), dns([A], { name: "old", clusterIp: "10.96.0.11" })]),
    planOf([dns([B], { nodePort: 30054 })]),
  ];
  frontends.note(first!, testPlanChanges(first!));
  frontends.take();
  frontends.note(second!, testPlanChanges(second!, first!));
  await frontends.search(frontends.take(), () => undefined);
  const owners = [
    ["10.96.0.10:53", "ns/dns/UDP"],
    ["10.96.0.11:53", "ns/old/UDP"],
    [`${NODE}:30053`, "ns/dns/UDP"],
    [`${NODE}:30054`, "ns/dns/UDP"],
    ["10.96.0.12:53", undefined],
  ] as const;
  for (const [to, owner] of owners) {
    assertEquals<string | undefined>(frontends.ownerOf(parseFlow(`${to} ${A}`)), owner, to);
  }
});
