import { assertEquals } from "@std/assert";
import {
  testEndpoint,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import type { Quarantined } from "./data_plane.ts";
import { explainPacket } from "./explain_packet.ts";
import type { Packet, PacketSender } from "./packet.ts";
import type { ModeDeviations, NearMiss, PacketExplanation } from "./packet_explanation.ts";

const HERE = testEndpoint("10.0.0.1:8080", { isLocal: true, nodeName: "here" });
const THERE = testEndpoint("10.0.0.2:8080", { nodeName: "there" });
const CLUSTER = { kind: "forward", endpoints: [HERE, THERE] } as const;
const LOCAL = { kind: "forward", endpoints: [HERE] } as const;

const WEB = testServicePlan({
  clusterIp: "10.96.0.1",
  nodePort: 30080,
  masqueradeInternal: "off-cluster",
  externalTrafficPolicy: "Local",
  internal: CLUSTER,
  external: LOCAL,
  externalFromCluster: CLUSTER,
  endpoints: [HERE, THERE],
  reachable: [HERE, THERE],
});
const CLAIMANT = testServicePlan({
  name: "later",
  clusterIp: "10.96.0.2",
  externalIps: ["10.96.0.1"],
});
const PLAN = testProxyPlan([CLAIMANT, WEB], {
  shared: {
    nodePortAddresses: [parseIpAddress("192.0.2.1")],
    localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/16") },
    serviceCidrs: [parseCidr("10.96.0.0/16")],
    node: { name: "here" },
  },
});

function packet(kind: PacketSender["kind"], from: string, to: string): Packet {
  const at = to.lastIndexOf(":");
  return {
    from: { kind, address: parseIpAddress(from) },
    to: parseIpAddress(to.slice(0, at)),
    port: parsePort(to.slice(at + 1)),
    protocol: "TCP",
  };
}

function explain(
  to: string | Packet,
  { deviations = {}, ...rest }: {
    readonly deviations?: ModeDeviations;
    readonly quarantined?: readonly Quarantined[];
    readonly unserved?: readonly NearMiss[];
  } = {},
): PacketExplanation {
  const asked = typeof to === "string" ? packet("outside", "203.0.113.1", to) : to;
  const explain = () => ({ deviations, carriers: [] });
  return explainPacket(PLAN, asked, { mode: "iptables", explain }, rest);
}

function eligible({ endpoints }: PacketExplanation): readonly string[] {
  return endpoints.filter(({ eligible }) => eligible).map(({ key }) => key);
}

Deno.test("explainPacket() names the ServicePorts that claim an address without owning it", () => {
  const { service } = explain("10.96.0.1:80");
  assertEquals<unknown>(service, {
    key: WEB.key,
    role: "ClusterIP",
    otherClaimants: [{ key: CLAIMANT.key, why: "cluster IP" }],
  });
});

Deno.test("explainPacket() names the endpoints that the mode leaves out, and the reason", () => {
  const leftOut = new Map([[THERE.key, "it leads back"]]);
  const explanation = explain("10.96.0.1:80", { deviations: { leftOut } });
  assertEquals(eligible(explanation), [HERE.key]);
  const [, there] = explanation.endpoints;
  assertEquals([there?.key, there?.leftOut], ["10.0.0.2:8080", "it leads back"]);
});

Deno.test("explainPacket() treats a frontend in quarantine as unserved", () => {
  const whole = explain("10.96.0.1:80", { quarantined: [{ key: WEB.key, reason: "no room" }] });
  assertEquals<unknown>(whole.verdict, {
    kind: "unclaimed",
    why: "quarantined",
    detail: "no room",
    outcome: "passes",
  });
  const other = [{ key: WEB.key, address: "10.96.0.9:80/TCP", reason: "no room" }];
  assertEquals(explain("10.96.0.1:80", { quarantined: other }).verdict.kind, "forward");
});

Deno.test("explainPacket() follows a mode that refuses, hides the client, or does not serve", () => {
  const refused = explain("10.96.0.1:80", {
    deviations: { refusal: { kind: "reject", detail: "so it is" } },
  });
  assertEquals<unknown>(refused.verdict, { kind: "reject", why: "mode", detail: "so it is" });
  assertEquals(eligible(refused), []);
  const hidden = explain("192.0.2.1:30080", {
    deviations: { source: { rewritten: "always", detail: "sockets" } },
  });
  assertEquals(hidden.endpoints.map(({ seesNode }) => seesNode), [true, undefined]);
  const unserved = explain("192.0.2.1:30080", { deviations: { unserved: "not there" } });
  assertEquals<unknown>(unserved.verdict, {
    kind: "unclaimed",
    why: "unserved-by-mode",
    detail: "not there",
    outcome: "passes",
  });
});

Deno.test("explainPacket() distinguishes a hairpin of another node's pod from one on this node", () => {
  const ofPod = (address: string) =>
    explain(packet("pod", address, "10.96.0.1:80")).endpoints
      .map(({ seesNode }) => seesNode);
  assertEquals(ofPod("10.0.0.1"), [true, false]);
  // Policy Local sends packets to external addresses on as they are, so this one may come here.
  assertEquals(ofPod("10.0.0.2"), [false, true]);
  assertEquals(ofPod("10.0.0.3"), [false, false]);
});

Deno.test("explainPacket() does not call a Service unserved that has the address at another port", () => {
  const address = parseIpAddress("10.96.0.2");
  const of = (service: string) => ({ kind: "unserved", service, address }) as const;
  const unserved = [of("ns/later"), of("ns/late")];
  const { nearMisses } = explain("10.96.0.2:12345", { unserved });
  assertEquals(nearMisses.map(({ kind, service }) => `${kind} ${service}`), [
    "unserved ns/late",
    "other-port ns/later/TCP",
  ]);
});
