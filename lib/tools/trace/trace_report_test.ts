import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import type { ExplainedEndpoint, ExplainedVerdict } from "../../proxy/packet_explanation.ts";
import type { TracedPath } from "../../proxy/packet_trace.ts";
import { paintText } from "../report.ts";
import {
  compareWithExplanation,
  NO_ROUTE,
  outcomeOf,
  type TraceOrigin,
  type TraceOutcome,
  type TraceReport,
  traceView,
} from "./trace_report.ts";

const CLIENT = parseIpAddress("192.168.0.1");
const VIP = parseIpAddress("10.96.0.1");
const POD = parseIpAddress("10.1.0.1");
const NODE = parseIpAddress("192.168.0.2");
const HEADER = {
  ...{ source: CLIENT, destination: VIP, sourcePort: 4000, destinationPort: 80 },
  leavesBy: "eth0",
};
const NOW = { ...HEADER, destination: POD, destinationPort: 8080 };
const UNTURNED: ConntrackEntry = {
  original: HEADER,
  reply: { source: VIP, destination: CLIENT, sourcePort: 80, destinationPort: 4000 },
};
const TURNED: ConntrackEntry = {
  original: HEADER,
  reply: { source: POD, destination: NODE, sourcePort: 8080, destinationPort: 4000 },
};
const FORWARDED = { kind: "forwarded", endpoint: "10.1.0.1:8080" } as const;
const REJECT = { place: "filter KUBE-SERVICES", rule: "-j REJECT", verdict: "drop" };
const DNAT = { place: "ip kube-relay to-2", rule: "dnat ip to …", verdict: "accept" };
const FIRST = { place: "nat OUTPUT", verdict: "accept", header: HEADER };
const WAITED: TraceOrigin = { kind: "waited for" };
const sent = (result: string): TraceOrigin => ({ kind: "sent", what: "a TCP SYN", result });

const OUTCOMES: readonly (readonly [
  name: string,
  path: Partial<TracedPath>,
  expected: TraceOutcome,
  rest?: { entry?: ConntrackEntry; origin?: TraceOrigin; isInKernel?: boolean },
])[] = [
  ["conntrack has the endpoint and the address that it sees", {}, { ...FORWARDED, seenAs: NODE }, {
    entry: TURNED,
  }],
  ["conntrack has the packet as it was", {}, { kind: "unchanged" }, { entry: UNTURNED }],
  ["the packet itself shows the endpoint", {
    steps: [FIRST, { ...FIRST, header: NOW }, { place: "nat POSTROUTING", verdict: "accept" }],
  }, FORWARDED],
  ["nothing changed", { steps: [FIRST] }, { kind: "unchanged" }],
  ["it was lost after a DNAT", { steps: [FIRST, DNAT] }, { kind: "lost", by: DNAT }],
  ["counters have the endpoint", { turnedTo: FORWARDED.endpoint }, FORWARDED],
  ["conntrack is more certain than counters", { turnedTo: FORWARDED.endpoint }, {
    kind: "unchanged",
  }, { entry: UNTURNED }],
  [
    "a mode knows the endpoint",
    { endpoint: FORWARDED.endpoint },
    { ...FORWARDED, seenAs: CLIENT },
    {
      entry: UNTURNED,
    },
  ],
  ["a rule refused", { steps: [REJECT], ending: "rejected" }, { kind: "rejected", by: REJECT }],
  ["counters moved without a route", {}, { kind: "not seen" }, { origin: sent(NO_ROUTE) }],
  ["an awaited packet was not seen", { ending: "not seen" }, { kind: "not seen" }],
  ["a refused packet was not seen", { ending: "not seen" }, { kind: "rejected" }, {
    origin: sent("refused"),
  }],
  ["a silent packet was not seen", { ending: "not seen" }, { kind: "not seen" }, {
    origin: sent("no answer"),
  }],
  ["a forwarder has no such packet", { ending: "not seen" }, { kind: "unchanged" }, {
    origin: sent("no answer"),
    isInKernel: false,
  }],
];

for (const [name, path, expected, rest = {}] of OUTCOMES) {
  Deno.test(`outcomeOf(): ${name}`, () => {
    const { entry, origin = WAITED, isInKernel = true } = rest;
    const whole: TracedPath = { steps: [], ending: "went on", header: HEADER, notes: [], ...path };
    assertEquals(outcomeOf(whole, entry, origin, isInKernel), expected);
  });
}

function endpoint(key: string, rest: Partial<ExplainedEndpoint> = {}): ExplainedEndpoint {
  const state = { isLocal: true, ready: true, serving: true, terminating: false };
  return { key: key as EndpointKey, eligible: true, seesNode: true, ...state, ...rest };
}

const ENDPOINTS = [
  endpoint("10.1.0.1:8080"),
  endpoint("10.1.0.2:8080", { seesNode: false }),
  endpoint("10.1.0.3:8080", { eligible: false, exclusion: "not-ready" }),
];
const PASSES: ExplainedVerdict = { kind: "unclaimed", why: "no-service", outcome: "passes" };
const to = (key: string, seenAs = NODE): TraceOutcome => ({
  ...{ kind: "forwarded", endpoint: key, seenAs },
});

for (
  const [verdict, outcome, differences] of [
    [{ kind: "forward" }, to("10.1.0.1:8080"), []],
    [{ kind: "forward" }, to("10.1.0.2:8080", CLIENT), []],
    [{ kind: "forward" }, to("10.1.0.1:8080", CLIENT), [
      "the endpoint sees 192.168.0.1 as client, an address of this node was due",
    ]],
    [{ kind: "forward" }, to("10.1.0.2:8080"), [
      "the endpoint sees 192.168.0.2 as client, the sender's own 192.168.0.1 was due",
    ]],
    [{ kind: "forward" }, to("10.1.0.3:8080"), [
      "it went to 10.1.0.3:8080, which may not get it (not-ready)",
    ]],
    [{ kind: "forward" }, { kind: "dropped" }, ["the packet was dropped; expected: THIS"]],
    [PASSES, { kind: "unchanged" }, []],
    // No program listens there, so the kernel rejects.
    [PASSES, { kind: "rejected" }, []],
    [PASSES, { kind: "rejected", by: REJECT }, ["the packet was rejected; expected: THIS"]],
    [{ kind: "drop", why: "source-ranges" }, { kind: "dropped" }, []],
  ] as const
) {
  Deno.test(`compareWithExplanation() of ${verdict.kind} and ${JSON.stringify(outcome)}`, () => {
    const explained = { verdict, endpoints: ENDPOINTS, headline: "THIS" };
    assertEquals(compareWithExplanation(explained, outcome, [NODE], CLIENT), {
      expected: "THIS",
      differences: [...differences],
    });
  });
}

const REPORT: TraceReport = {
  ...{ mode: "nftables", node: "node-a", way: "nft monitor trace", notes: [] },
  packet: {
    ...{ family: "IPv4", from: CLIENT, sourcePort: 4000, to: VIP, protocol: "TCP" },
    port: parsePort(80),
  },
  origin: sent("connected, and closed at once"),
  service: { key: "ns1/web:http/TCP", role: "ClusterIP" },
  steps: [
    {
      place: "ip kube-relay nat-output",
      rule: "jump services",
      verdict: "jump services",
      header: HEADER,
      meaning: "a new connection: is this an address of a Service?",
    },
    { place: "ip filter OUTPUT", verdict: "accept" },
  ],
  outcome: { ...FORWARDED, seenAs: NODE },
  conntrack: { ...TURNED, state: "TIME_WAIT" },
  comparison: { expected: "FORWARDED to one of 2 endpoints of ns1/web:http", differences: [] },
};

Deno.test("traceView() shows packet, path, result and comparison", () => {
  assertEquals(
    paintText(traceView(REPORT)),
    `Packet   TCP 192.168.0.1:4000 -> 10.96.0.1:80, sent by this command (a TCP SYN):
         connected, and closed at once
Service  ns1/web:http/TCP, ClusterIP
Seen by  nft monitor trace, in mode nftables on node node-a

[192.168.0.1:4000 -> 10.96.0.1:80, leaves by eth0]
ip kube-relay nat-output: jump services
  = a new connection: is this an address of a Service?
ip filter OUTPUT: end of chain, accept

Result   forwarded to 10.1.0.1:8080, which sees 192.168.0.2 as client
Tracked  192.168.0.1:4000 -> 10.96.0.1:80, answered 10.1.0.1:8080 ->
         192.168.0.2:4000 (TIME_WAIT)
Explain  agrees: FORWARDED to one of 2 endpoints of ns1/web:http
`,
  );
});

Deno.test("traceView() gives the reason why no rule matched a packet of a known flow", () => {
  const report: TraceReport = { ...REPORT, steps: [], origin: WAITED };
  const known = paintText(traceView(report));
  assert(known.includes("\nRules    no rule was asked: the kernel knows this flow"));
  const { conntrack: _, ...unknown } = report;
  assert(paintText(traceView(unknown)).includes("\nRules    no watched rule matched it"));
});
