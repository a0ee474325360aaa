import { assertEquals } from "@std/assert";
import { testEndpoint, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { claimsOf, keyOfEntry } from "./entry.ts";

Deno.test("claimsOf() names every address and port by which a ServicePort is reached", () => {
  const claims = claimsOf(testServicePlan({
    clusterIp: "172.30.0.1",
    protocol: "UDP",
    port: 53,
    nodePort: 30_053,
    externalIps: ["192.0.2.1"],
    loadBalancerVips: ["192.0.2.2"],
  }));
  assertEquals<readonly string[]>(claims, [
    "service-ips 172.30.0.1 . udp . 53",
    "service-ips 192.0.2.1 . udp . 53",
    "service-ips 192.0.2.2 . udp . 53",
    "node-ports udp . 30053",
    "cluster-ips 172.30.0.1",
  ]);
});

Deno.test("claimsOf() asks for the masquerade of endpoints that this node may send their own packets", () => {
  const reachable = [
    testEndpoint("10.0.0.1:80", { isLocal: true, nodeName: "here" }),
    testEndpoint("10.0.0.1:81", { isLocal: true, nodeName: "here" }),
    testEndpoint("10.0.0.2:80", { nodeName: "there" }),
    testEndpoint("10.0.0.3:80"),
  ];
  const hairpins = (options: Parameters<typeof testServicePlan>[0]) =>
    claimsOf(testServicePlan({ reachable, ...options })).filter((id) => id.startsWith("hairpin"))
      .map(String);
  const [here, there, unknown] = [1, 2, 3].map((host) => `hairpin 10.0.0.${host} . 10.0.0.${host}`);
  assertEquals(hairpins({}), [here!, unknown!], "each address once");
  assertEquals(
    hairpins({ nodePort: 30_000 }),
    [here!, unknown!],
    "all from outside is masqueraded",
  );
  const externalTrafficPolicy = "Local";
  assertEquals(
    hairpins({ externalTrafficPolicy }),
    [here!, unknown!],
    "nothing comes from outside",
  );
  for (
    const front of [
      { nodePort: 30_000 },
      { externalIps: ["192.0.2.1"] },
      { loadBalancerVips: ["192.0.2.1"] },
    ]
  ) {
    assertEquals(hairpins({ externalTrafficPolicy, ...front }), [here!, there!, unknown!]);
  }
});

Deno.test("keyOfEntry() gives back the key of a claim", () => {
  const plan = testServicePlan({ clusterIp: "fd00::1" });
  const [claim] = claimsOf(plan);
  assertEquals(claim && keyOfEntry(claim), "fd00::1 . tcp . 80");
});
