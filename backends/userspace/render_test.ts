import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  testForward,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { renderForwardingTable } from "./explain.ts";

Deno.test("renderForwardingTable() writes a line for each address, sorted by key", () => {
  const plan = testProxyPlan([
    testServicePlan({
      name: "web",
      to: ["10.0.0.1:8080", "10.0.0.2:8080"],
      affinityTimeoutSeconds: 600,
      nodePort: 30_080,
    }),
    testServicePlan({
      name: "lb",
      clusterIp: "127.96.0.2",
      internal: testForward("10.0.0.3:80"),
      external: { kind: "drop" },
      externalFromCluster: testForward("10.0.0.3:80"),
      loadBalancerVips: ["203.0.113.1"],
      sourceRanges: [parseCidr("198.51.100.0/24")],
    }),
    testServicePlan({ name: "empty", clusterIp: "127.96.0.3", protocol: "UDP", portName: "dns" }),
  ], { shared: { nodePortAddresses: [parseIpAddress("192.0.2.10")] } });
  assertEquals(
    [...renderForwardingTable(plan)].join(""),
    [
      "127.96.0.3:80/UDP ClusterIP ns/empty:dns/UDP -> reject",
      "127.96.0.2:80/TCP ClusterIP ns/lb/TCP -> 10.0.0.3:80",
      "203.0.113.1:80/TCP LoadBalancer ns/lb/TCP -> drop, from this cluster 10.0.0.3:80," +
      " only from 198.51.100.0/24",
      "127.96.0.1:80/TCP ClusterIP ns/web/TCP -> 10.0.0.1:8080 10.0.0.2:8080, affinity 600s",
      "192.0.2.10:30080/TCP NodePort ns/web/TCP -> 10.0.0.1:8080 10.0.0.2:8080, affinity 600s",
      "",
    ].join("\n"),
  );
});

Deno.test("renderForwardingTable() hands out pieces of some KB", () => {
  const plans = Array.from(
    { length: 1000 },
    (_, n) =>
      testServicePlan({
        name: `s${n}`,
        clusterIp: `127.96.${n >> 8}.${n & 255}`,
        to: ["10.0.0.1:80"],
      }),
  );
  const pieces = [...renderForwardingTable(testProxyPlan(plans))];
  assert(pieces.length > 1);
  for (const piece of pieces) assert(piece.length < 20_000 && piece.endsWith("\n"));
  assertEquals(pieces.join("").split("\n").length, 1001);
});

Deno.test("renderForwardingTable() writes only the named ServicePorts that exist", () => {
  const [web, other] = [
    testServicePlan({ name: "web", to: ["10.0.0.1:80"] }),
    testServicePlan({ name: "other", clusterIp: "127.96.0.2", to: ["10.0.0.2:80"] }),
  ];
  assertEquals(
    [...renderForwardingTable(testProxyPlan([web]), new Set([other.key, web.key]))].join(""),
    "127.96.0.1:80/TCP ClusterIP ns/web/TCP -> 10.0.0.1:80\n",
  );
});
