import { assert, assertEquals } from "@std/assert";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { randomFrom } from "../../tests/support/seeded_random.ts";
import { testEndpoint, testServicePlan } from "../../tests/support/service_plans.ts";
import {
  claimsOf,
  compareClaims,
  insertClaim,
  keyOfEntry,
  type RankedClaim,
  rankedClaim,
  type Role,
} from "./claims.ts";

/** As texts, e.g. `clusterIp: service-ips 172.30.0.1 . tcp . 80`. */
function claimTexts(...options: Parameters<typeof testServicePlan>): string[] {
  return claimsOf(testServicePlan(...options)).map(({ id, role }) => `${role}: ${id}`);
}

Deno.test("claimsOf() names every address and port by which a ServicePort is reached", () => {
  const claims = claimTexts({
    clusterIp: "172.30.0.1",
    protocol: "UDP",
    port: 53,
    nodePort: 30_053,
    externalIps: ["192.0.2.1"],
    loadBalancerVips: ["192.0.2.1", "192.0.2.2"],
  });
  assertEquals(claims, [
    "clusterIp: service-ips 172.30.0.1 . udp . 53",
    "allocated: cluster-ips 172.30.0.1",
    "externalIp: service-ips 192.0.2.1 . udp . 53",
    "loadBalancer: service-ips 192.0.2.1 . udp . 53",
    "loadBalancer: service-ips 192.0.2.2 . udp . 53",
    "nodePort: node-ports udp . 30053",
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
    claimTexts({ reachable, ...options }).filter((text) => text.startsWith("hairpin"));
  const [here, there, unknown] = [1, 2, 3].map((host) =>
    `hairpin: hairpin 10.0.0.${host} . 10.0.0.${host}`
  );
  assertEquals(hairpins({}), [here!, unknown!], "each address once");
  assertEquals(
    hairpins({ nodePort: 30_000 }),
    [here!, unknown!],
    "all from outside is masqueraded",
  );
  const masqueradeExternal = "from-node";
  assertEquals(hairpins({ masqueradeExternal }), [here!, unknown!], "nothing comes from outside");
  for (
    const front of [
      { nodePort: 30_000 },
      { externalIps: ["192.0.2.1"] },
      { loadBalancerVips: ["192.0.2.1"] },
    ]
  ) {
    assertEquals(hairpins({ masqueradeExternal, ...front }), [here!, there!, unknown!]);
  }
});

Deno.test("compareClaims() puts cluster IPs first, then the older Service, then the name", () => {
  const claim = (role: Role, name: string, createdAt: string): RankedClaim =>
    rankedClaim({ ...testServicePlan({ name }), createdAt }, role);
  const sorted = [
    claim("clusterIp", "z", "2026-03-01T00:00:00Z"),
    claim("loadBalancer", "y", "2026-01-01T00:00:00Z"),
    claim("externalIp", "a", "2026-02-01T00:00:00Z"),
    claim("loadBalancer", "a", "2026-02-01T00:00:00Z"),
    claim("externalIp", "b", "2026-02-01T00:00:00Z"),
  ];
  assertEquals(sorted.toReversed().sort(compareClaims), sorted);
  assertEquals(compareClaims(sorted[0]!, sorted[0]!), 0);
});

Deno.test("insertClaim() keeps claims sorted, and looks at few of them", () => {
  const random = randomFrom(7);
  let looks = 0;
  const given = Array.from({ length: 4096 }, (): RankedClaim => {
    const order = String(random()).padEnd(24, "0");
    const claim = { key: "default/web/http/TCP" as ServicePortKey, role: "externalIp" as const };
    return {
      ...claim,
      get order() {
        return looks++, order;
      },
    };
  });
  const claims: RankedClaim[] = [];
  for (const claim of given) insertClaim(claims, claim);
  const perClaim = looks / given.length;
  assertEquals(claims, given.toSorted(compareClaims));
  assert(perClaim < 4 * 13, `${perClaim} looks for each: they are more than a search takes`);
});

Deno.test("keyOfEntry() gives back the key of a claim", () => {
  const plan = testServicePlan({ clusterIp: "fd00::1" });
  const [claim] = claimsOf(plan);
  assertEquals(claim && keyOfEntry(claim.id), "fd00::1 . tcp . 80");
});
