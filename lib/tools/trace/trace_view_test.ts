import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { paintText } from "../report.ts";
import type { TraceReport } from "./trace_outcome.ts";
import { traceView } from "./trace_view.ts";

const CLIENT = parseIpAddress("192.168.0.2");
const VIP = parseIpAddress("10.96.0.1");
const HEADER = {
  source: CLIENT,
  destination: VIP,
  sourcePort: 4000,
  destinationPort: 80,
  leavesBy: "eth0",
};

const REPORT: TraceReport = {
  mode: "nftables",
  node: "node-a",
  packet: {
    family: "IPv4",
    from: CLIENT,
    sourcePort: 4000,
    to: VIP,
    port: parsePort(80),
    protocol: "TCP",
  },
  origin: { kind: "sent", what: "a TCP SYN", result: "connected, and closed at once" },
  way: "nft monitor trace",
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
  outcome: { kind: "forwarded", endpoint: "10.1.0.1:8080", seenAs: CLIENT },
  conntrack: {
    original: HEADER,
    reply: {
      source: parseIpAddress("10.1.0.1"),
      destination: CLIENT,
      sourcePort: 8080,
      destinationPort: 4000,
    },
    state: "TIME_WAIT",
  },
  comparison: { expected: "forwarding to 10.1.0.1:8080", differences: [] },
  notes: [],
};

Deno.test("traceView() shows packet, path, result and comparison", () => {
  assertEquals(
    paintText(traceView(REPORT)),
    `Packet   TCP 192.168.0.2:4000 -> 10.96.0.1:80, sent by this command (a TCP SYN):
         connected, and closed at once
Service  ns1/web:http/TCP, ClusterIP
Seen by  nft monitor trace, in mode nftables on node node-a

[192.168.0.2:4000 -> 10.96.0.1:80, leaves by eth0]
ip kube-relay nat-output: jump services
  = a new connection: is this an address of a Service?
ip filter OUTPUT: end of chain, accept

Result   forwarded to 10.1.0.1:8080, which sees 192.168.0.2 as client
Tracked  192.168.0.2:4000 -> 10.96.0.1:80, answered 10.1.0.1:8080 ->
         192.168.0.2:4000 (TIME_WAIT)
Explain  agrees: forwarding to 10.1.0.1:8080
`,
  );
});

Deno.test("traceView() gives the reason why no rule matched a packet of a known flow", () => {
  const report: TraceReport = { ...REPORT, steps: [], origin: { kind: "waited for" } };
  assert(
    paintText(traceView(report)).includes(
      "\nRules    no rule was asked: the kernel knows this flow",
    ),
  );
  const { conntrack: _, ...unknown } = report;
  assert(paintText(traceView(unknown)).includes("\nRules    no watched rule matched it"));
});
