import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  testForward,
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { serviceAddresses } from "./listeners.ts";

const TO = ["10.0.0.1:8080"];
const NODE = testSharedPlan({
  nodePortAddresses: [parseIpAddress("192.0.2.10"), parseIpAddress("127.0.0.1")],
});

/** Sockets as `socket role traffic`, with `closed` where nothing may be forwarded. */
function addresses(options: TestServicePlan): string[] {
  return serviceAddresses(testServicePlan(options), NODE).map((at) =>
    `${at.socket} ${at.role} ${at.traffic}${at.open ? "" : " closed"}`
  );
}

Deno.test("serviceAddresses() lists each address of a ServicePort", async (t) => {
  const forward = testForward(...TO);
  const reject = { kind: "reject" } as const;
  const cases: [string, TestServicePlan, string[]][] = [
    ["a cluster IP", { to: TO }, ["127.96.0.1:80/TCP ClusterIP internal"]],
    ["UDP", { to: TO, protocol: "UDP", port: 53 }, ["127.96.0.1:53/UDP ClusterIP internal"]],
    ["IPv6 in brackets", { to: TO, clusterIp: "fd00::1" }, ["[fd00::1]:80/TCP ClusterIP internal"]],
    ["no endpoints: no socket", {}, ["127.96.0.1:80/TCP ClusterIP internal closed"]],
    ["external IPs", { to: TO, externalIps: ["203.0.113.1", "203.0.113.2"] }, [
      "127.96.0.1:80/TCP ClusterIP internal",
      "203.0.113.1:80/TCP ExternalIP external",
      "203.0.113.2:80/TCP ExternalIP external",
    ]],
    ["a load balancer with source ranges", {
      to: TO,
      loadBalancerVips: ["203.0.113.9"],
      sourceRanges: [parseCidr("198.51.100.0/24")],
    }, [
      "127.96.0.1:80/TCP ClusterIP internal",
      "203.0.113.9:80/TCP LoadBalancer external",
    ]],
    ["a node port on each address of the node", { to: TO, nodePort: 30_080 }, [
      "127.96.0.1:80/TCP ClusterIP internal",
      "192.0.2.10:30080/TCP NodePort external",
      "127.0.0.1:30080/TCP NodePort external",
    ]],
    ["external policy Local without local endpoints: open for the cluster's own clients", {
      to: TO,
      external: { kind: "drop" },
      externalFromCluster: forward,
      externalIps: ["203.0.113.1"],
    }, ["127.96.0.1:80/TCP ClusterIP internal", "203.0.113.1:80/TCP ExternalIP external"]],
    ["internal policy Local without local endpoints: nothing on the cluster IP", {
      internal: { kind: "drop" },
      external: forward,
      externalIps: ["203.0.113.1"],
    }, ["127.96.0.1:80/TCP ClusterIP internal closed", "203.0.113.1:80/TCP ExternalIP external"]],
    ["nothing to forward to from outside", {
      internal: forward,
      external: reject,
      externalIps: ["203.0.113.1"],
    }, ["127.96.0.1:80/TCP ClusterIP internal", "203.0.113.1:80/TCP ExternalIP external closed"]],
  ];
  for (const [name, options, expected] of cases) {
    await t.step(name, () => assertEquals(addresses(options), expected));
  }
});
