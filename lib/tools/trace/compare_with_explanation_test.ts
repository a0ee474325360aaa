import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import type { ExplainedEndpoint, PacketExplanation } from "../../proxy/packet_explanation.ts";
import { compareWithExplanation } from "./compare_with_explanation.ts";
import type { TraceOutcome } from "./trace_report.ts";

const CLIENT = parseIpAddress("10.0.0.1");
const NODE = parseIpAddress("192.168.0.2");

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
