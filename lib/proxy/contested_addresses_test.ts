import { assertEquals, assertMatch } from "@std/assert";
import {
  testPlanChanges,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/service_plans.ts";
import { ContestedAddresses } from "./contested_addresses.ts";
import type { ProxyPlan } from "./proxy_plan.ts";

const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"];
const ADDRESS = "203.0.113.1:80/TCP";

/** Who lacks an address after each of these syncs. */
function losersOf(...syncs: readonly (readonly TestServicePlan[])[]) {
  const contested = new ContestedAddresses();
  let previous: ProxyPlan | undefined;
  return syncs.map((services) => {
    const plan = testProxyPlan(services.map(testServicePlan));
    contested.update(plan, testPlanChanges(plan, previous));
    previous = plan;
    return contested.losers;
  });
}

function namesOf(losers: ReturnType<typeof losersOf>): readonly string[][] {
  return losers.map((each) => each.map(({ key, address }) => `${key} ${address}`));
}

Deno.test("ContestedAddresses has nothing to say until a second Service claims an address", () => {
  const shared = { externalIps: ["203.0.113.1"] };
  const a = { ...shared, name: "a", createdAt: NEW };
  const b = { ...shared, name: "b", createdAt: OLD };
  const losers = losersOf([a], [a, b], [a, b], [b], [a, b], []);
  const aLacks = [`ns/a/TCP ${ADDRESS}`];
  assertEquals(namesOf(losers), [[], aLacks, aLacks, [], aLacks, []]);
  assertMatch(losers[1]![0]!.reason, /^Cannot serve 203\.0\.113\.1:80\/TCP: ns\/b\/TCP claims/);
});

Deno.test("ContestedAddresses gives the address to the oldest, then to the first by name", () => {
  const at = (name: string, createdAt: string) => ({
    ...{ name, createdAt },
    loadBalancerVips: ["203.0.113.1"],
  });
  const [a, b, c] = [at("a", NEW), at("b", NEW), at("c", OLD)];
  assertEquals(namesOf(losersOf([b, a], [b, a, c])), [
    [`ns/b/TCP ${ADDRESS}`],
    [`ns/a/TCP ${ADDRESS}`, `ns/b/TCP ${ADDRESS}`],
  ]);
});

Deno.test("ContestedAddresses follows a Service that moves to another port", () => {
  const externalIps = ["203.0.113.1"];
  const [a, b] = [{ name: "a", externalIps }, { name: "b", externalIps }];
  const losers = losersOf([a, b], [{ ...a, port: 81 }, b]);
  assertEquals(namesOf(losers), [[`ns/b/TCP ${ADDRESS}`], []]);
});

Deno.test("ContestedAddresses passes over what differs in port, protocol or address", () => {
  const one = { name: "a", externalIps: ["203.0.113.1"], loadBalancerVips: ["203.0.113.1"] };
  const others: readonly TestServicePlan[] = [
    { ...one, name: "b", port: 81 },
    { ...one, name: "c", protocol: "UDP" },
    { name: "d", externalIps: ["203.0.113.2"] },
    { name: "e", nodePort: 30000 },
  ];
  assertEquals(losersOf([one, ...others]), [[]]);
});

Deno.test("ContestedAddresses gives a cluster IP to its Service, whichever comes first", () => {
  const address = "10.96.0.2";
  const owner = { name: "owner", clusterIp: address, createdAt: NEW };
  const guest = { name: "guest", externalIps: [address], createdAt: OLD };
  const guestLacks = [`ns/guest/TCP ${address}:80/TCP`];
  const losers = losersOf([owner, guest], [guest], [guest, owner], [owner], [owner, guest]);
  assertEquals(namesOf(losers), [guestLacks, [], guestLacks, [], guestLacks]);
  assertMatch(losers[0]![0]!.reason, /ns\/owner\/TCP has this address as its cluster IP/);
  const moved = { ...owner, clusterIp: "10.96.0.3" };
  assertEquals(namesOf(losersOf([owner, guest], [moved, guest])), [guestLacks, []]);
  const itself = { ...owner, externalIps: [address] };
  assertEquals(namesOf(losersOf([itself], [itself, guest])), [[], guestLacks]);
});
