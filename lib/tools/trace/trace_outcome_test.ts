import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import type { ExplainedEndpoint, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { TracedPath } from "../../proxy/packet_trace.ts";
import { compareWithExplanation, NO_ROUTE, outcomeOf, type TraceOutcome } from "./trace_outcome.ts";

const CLIENT = parseIpAddress("10.0.0.1");
const VIP = parseIpAddress("10.96.0.1");
const POD = parseIpAddress("10.1.0.1");
const NODE = parseIpAddress("192.168.0.2");
const HEADER = { source: CLIENT, destination: VIP, sourcePort: 4000, destinationPort: 80 };
const WENT_ON: TracedPath = { steps: [], ending: "went on", header: HEADER, notes: [] };
const NOT_SEEN: TracedPath = { steps: [], ending: "not seen", notes: [] };
const WAITED = { kind: "waited for" } as const;
const EVIDENCE = { entry: undefined, origin: WAITED, isInKernel: true };

function entry(reply: Partial<ConntrackEntry["reply"]> = {}): ConntrackEntry {
  return {
    original: HEADER,
    reply: { source: VIP, destination: CLIENT, sourcePort: 80, destinationPort: 4000, ...reply },
  };
}

Deno.test("outcomeOf() reads the endpoint and the address that it sees from conntrack", () => {
  const turned = entry({ source: POD, sourcePort: 8080, destination: NODE });
  assertEquals(outcomeOf(WENT_ON, { ...EVIDENCE, entry: turned }), {
    kind: "forwarded",
    endpoint: "10.1.0.1:8080",
    seenAs: NODE,
  });
  assertEquals(outcomeOf(WENT_ON, { ...EVIDENCE, entry: entry() }), { kind: "unchanged" });
});

Deno.test("outcomeOf() reads the endpoint from the packet if nothing is tracked", () => {
  const last = { ...HEADER, destination: POD, destinationPort: 8080 };
  const steps = [
    { place: "nat OUTPUT", verdict: "accept", header: HEADER },
    { place: "nat POSTROUTING", verdict: "accept", header: last },
    { place: "nat POSTROUTING", verdict: "accept" },
  ];
  assertEquals(outcomeOf({ ...WENT_ON, steps }, EVIDENCE), {
    kind: "forwarded",
    endpoint: "10.1.0.1:8080",
  });
  assertEquals(outcomeOf(WENT_ON, EVIDENCE), { kind: "unchanged" });
});

Deno.test("outcomeOf() does not call a packet unchanged that was lost after a DNAT", () => {
  const by = { place: "ip kube-relay to-2", rule: "dnat ip to …", verdict: "accept" };
  const steps = [
    { place: "ip kube-relay nat-output", verdict: "jump services", header: HEADER },
    by,
  ];
  assertEquals(outcomeOf({ ...WENT_ON, steps }, EVIDENCE), { kind: "lost", by });
});

Deno.test("outcomeOf() reads the endpoint from the rule if no packet was seen", () => {
  const path: TracedPath = {
    steps: [],
    ending: "went on",
    turnedTo: "10.1.0.1:8080",
    notes: [],
  };
  assertEquals(outcomeOf(path, EVIDENCE), { kind: "forwarded", endpoint: "10.1.0.1:8080" });
  // The entry of connection tracking is certain: counters also count other packets.
  assertEquals(outcomeOf(path, { ...EVIDENCE, entry: entry() }), { kind: "unchanged" });
});

Deno.test("outcomeOf() names the rule that refused", () => {
  const by = { place: "filter KUBE-SERVICES", rule: "-j REJECT", verdict: "drop" };
  assertEquals(outcomeOf({ ...WENT_ON, steps: [by], ending: "rejected" }, EVIDENCE), {
    kind: "rejected",
    by,
  });
});

Deno.test("outcomeOf() believes no counter of a packet that had no route", () => {
  const origin = { kind: "sent", what: "a TCP SYN", result: NO_ROUTE } as const;
  assertEquals(outcomeOf(WENT_ON, { ...EVIDENCE, origin }), { kind: "not seen" });
});

Deno.test("outcomeOf() distinguishes a packet that was not seen", () => {
  const sent = (result: string) => ({ kind: "sent", what: "a TCP SYN", result }) as const;
  const kindOf = (origin: typeof WAITED | ReturnType<typeof sent>, isInKernel: boolean) =>
    outcomeOf(NOT_SEEN, { ...EVIDENCE, origin, isInKernel }).kind;
  assertEquals(kindOf(WAITED, true), "not seen");
  assertEquals(kindOf(sent("refused"), false), "rejected");
  assertEquals(kindOf(sent("no answer"), true), "not seen");
  assertEquals(kindOf(sent("no answer"), false), "unchanged");
});

function endpoint(key: string, rest: Partial<ExplainedEndpoint> = {}): ExplainedEndpoint {
  const state = { isLocal: true, ready: true, serving: true, terminating: false };
  return { key: key as EndpointKey, eligible: true, seesNode: true, ...state, ...rest };
}

const FORWARDED: PacketExplanation = {
  packet: {
    from: { kind: "pod", address: CLIENT },
    to: parseIpAddress("10.96.0.1"),
    port: parsePort(80),
    protocol: "TCP",
  },
  origin: { isFromPod: true, isFromNode: false },
  nearMisses: [],
  verdict: { kind: "forward" },
  endpoints: [
    endpoint("10.1.0.1:8080"),
    endpoint("10.1.0.2:8080", { seesNode: false }),
    endpoint("10.1.0.3:8080", { eligible: false, exclusion: "not-ready" }),
  ],
  carriers: [],
};

function differences(explanation: PacketExplanation, outcome: TraceOutcome): readonly string[] {
  return compareWithExplanation(explanation, { outcome, nodeAddresses: [NODE], sender: CLIENT })
    .differences;
}

const to = (key: string, seenAs = NODE): TraceOutcome => ({
  kind: "forwarded",
  endpoint: key,
  seenAs,
});

Deno.test("compareWithExplanation() agrees if endpoint and source are the expected ones", () => {
  assertEquals(differences(FORWARDED, to("10.1.0.1:8080")), []);
  assertEquals(differences(FORWARDED, to("10.1.0.2:8080", CLIENT)), []);
});

Deno.test("compareWithExplanation() names each difference", () => {
  assertEquals(differences(FORWARDED, to("10.1.0.1:8080", CLIENT)), [
    "the endpoint sees 10.0.0.1 as client, an address of this node was due",
  ]);
  assertEquals(differences(FORWARDED, to("10.1.0.2:8080")), [
    "the endpoint sees 192.168.0.2 as client, the sender's own 10.0.0.1 was due",
  ]);
  assertEquals(differences(FORWARDED, to("10.1.0.3:8080")), [
    "it went to 10.1.0.3:8080, which is none of those (not-ready)",
  ]);
  assertEquals(differences(FORWARDED, { kind: "dropped" }), [
    "the packet was dropped, forwarding to 10.1.0.1:8080, 10.1.0.2:8080 was due",
  ]);
});

Deno.test("compareWithExplanation() knows packets to no Service", () => {
  const unclaimed: PacketExplanation = {
    ...FORWARDED,
    endpoints: [],
    verdict: { kind: "unclaimed", why: "no-service", outcome: "passes" },
  };
  assertEquals(differences(unclaimed, { kind: "unchanged" }), []);
  // No program listens there, so the kernel rejects.
  assertEquals(differences(unclaimed, { kind: "rejected" }), []);
  const by = { place: "filter OUTPUT", verdict: "reject" };
  assertEquals(differences(unclaimed, { kind: "rejected", by }), [
    "the packet was rejected, no part of any Service was due",
  ]);
});
