import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { FrontendRole } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  testEndpoint,
  testForward,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { assert, assertEquals } from "@std/assert";
import { chainName } from "./chain_spec.ts";
import { claimsOf, frontendAt } from "./entry_id.ts";
import type { ContainerName } from "./containers.ts";
import {
  arrangeEndpoints,
  arrangeEntry,
  chainOf,
  elementsOf,
  type Entry,
  foundSlots,
  rangeText,
} from "./entry.ts";
import { LOCAL_BIT, nameNumber, SlotAllocator, type Slots, slotText } from "./slots.ts";

type Role = FrontendRole | "allocated";

const ENDPOINTS = ["10.0.0.1:80", "10.0.0.2:8080"];
const VIP = "192.0.2.1 . tcp . 80";
const POLICY_LOCAL = {
  externalTrafficPolicy: "Local",
  external: testForward("10.0.0.2:8080"),
  externalFromCluster: testForward(...ENDPOINTS),
} as const;

/** The first entry of a ServicePort for a frontend of this role, or of its cluster IP whatever the port. */
function entryOf(plan: ServicePlan, role: Role, previous?: Entry): Entry {
  const id = claimsOf(plan).find((id) => (frontendAt(id, plan)?.role ?? "allocated") === role);
  assert(id, `no entry as ${role}`);
  const slots = plan.affinityTimeoutSeconds === undefined
    ? undefined
    : new SlotAllocator().slotsOf(plan);
  return arrangeEntry(id, plan, { previous, slots });
}

/** The elements of an entry, in the syntax of nft. */
function texts(entry: Entry): string[] {
  return elementsOf(entry).map(({ container, key, value }) =>
    `${container} ${key}${value === undefined ? "" : ` : ${value}`}`
  );
}

/** The chain that an entry leads to; `undefined` = none chooses. */
function chainNameOf(plan: ServicePlan, role: Role): string | undefined {
  const spec = chainOf(entryOf(plan, role));
  return spec && chainName(spec);
}

Deno.test("elementsOf() gives an address the number of its chain, and its endpoints numbers", () => {
  const plan = testServicePlan({ clusterIp: "172.30.0.1", nodePort: 30_080, to: ENDPOINTS });
  assertEquals(texts(entryOf(plan, "ClusterIP")), [
    `service-ips 172.30.0.1 . tcp . 80 : ${nameNumber("to-2")}`,
    "endpoints 172.30.0.1 . tcp . 80 . 0x80000000 : 10.0.0.1 . 80",
    "endpoints 172.30.0.1 . tcp . 80 . 0x80000001 : 10.0.0.2 . 8080",
  ]);
  assertEquals(texts(entryOf(plan, "NodePort")), [
    `node-ports tcp . 30080 : ${nameNumber("node-port-masquerade-2")}`,
    "node-port-endpoints tcp . 30080 . 0x80000000 : 10.0.0.1 . 80",
    "node-port-endpoints tcp . 30080 . 0x80000001 : 10.0.0.2 . 8080",
  ]);
  assertEquals(texts(entryOf(plan, "allocated")), ["cluster-ips 172.30.0.1"]);
});

Deno.test("elementsOf() numbers the endpoints for clients from outside apart", () => {
  const plan = testServicePlan({ externalIps: ["192.0.2.1"], ...POLICY_LOCAL });
  assertEquals(texts(entryOf(plan, "ExternalIP")), [
    `service-ips ${VIP} : ${nameNumber("local-2-1")}`,
    `endpoints ${VIP} . 0x80000000 : 10.0.0.1 . 80`,
    `endpoints ${VIP} . 0x80000001 : 10.0.0.2 . 8080`,
    `endpoints ${VIP} . 0x80008000 : 10.0.0.2 . 8080`,
  ]);
});

const STICKY_LOCAL = testServicePlan({
  externalIps: ["192.0.2.1"],
  nodePort: 30_080,
  affinityTimeoutSeconds: 60,
  ...POLICY_LOCAL,
});

Deno.test("elementsOf() has the slots of a sticky ServicePort, in each list those of its own", () => {
  const plan = STICKY_LOCAL;
  const slots = new SlotAllocator().slotsOf(plan);
  const [first, second] = ENDPOINTS.map((key) => slots.get(key as EndpointKey)!);
  assertEquals(texts(entryOf(plan, "ExternalIP")), [
    `service-ips ${VIP} : ${nameNumber("local-2-1-sticky-60")}`,
    `choices ${VIP} . 0x80000000 : ${slotText(first!)}`,
    `endpoints ${VIP} . ${slotText(first!)} : 10.0.0.1 . 80`,
    `choices ${VIP} . 0x80000001 : ${slotText(second!)}`,
    `endpoints ${VIP} . ${slotText(second!)} : 10.0.0.2 . 8080`,
    `choices ${VIP} . 0x80008000 : ${slotText(second!)}`,
    `endpoints ${VIP} . ${slotText(second! + LOCAL_BIT)} : 10.0.0.2 . 8080`,
  ]);
});

Deno.test("foundSlots() reads back the slots of elementsOf(), by whichever frontend", () => {
  const claims = claimsOf(STICKY_LOCAL);
  const slots: Slots = new Map(
    [...new SlotAllocator().slotsOf(STICKY_LOCAL)].map((
      [key, slot],
    ) => [key, (slot ^ 0x1000) >>> 0]),
  );
  for (const role of ["ClusterIP", "ExternalIP", "NodePort"] as const) {
    const own = claims.filter((id) => frontendAt(id, STICKY_LOCAL)?.role === role);
    const found = new Map<ContainerName, Map<string, string>>();
    for (const id of own) {
      const entry = arrangeEntry(id, STICKY_LOCAL, { slots });
      for (const { container, key, value = "" } of elementsOf(entry)) {
        found.set(container, (found.get(container) ?? new Map()).set(key, value));
      }
    }
    const expected = role === "ClusterIP" ? [] : [...slots];
    assertEquals([...foundSlots(own, STICKY_LOCAL, found)].sort(), expected.sort(), role);
  }
  assertEquals(foundSlots(claims, STICKY_LOCAL, new Map()).size, 0);
});

Deno.test("elementsOf() admits only the source ranges of a load balancer", () => {
  const plan = testServicePlan({
    loadBalancerVips: ["192.0.2.1"],
    sourceRanges: ["203.0.113.0/24", "203.0.113.7/32", "198.51.100.1/32"].map(parseCidr),
    to: ["10.0.0.1:80"],
  });
  const entry = entryOf(plan, "LoadBalancer");
  const expected = [
    `service-ips ${VIP} : ${nameNumber("check-source-ranges")}`,
    `admitted ${VIP} : goto masquerade-1`,
    `source-ranges ${VIP} . 203.0.113.0/24`,
    `source-ranges ${VIP} . 198.51.100.1`,
    `endpoints ${VIP} . 0x80000000 : 10.0.0.1 . 80`,
  ];
  assertEquals(texts(entry), expected);
  assertEquals(
    texts(entryOf({ ...plan, admitsNode: true }, "LoadBalancer")),
    expected.toSpliced(4, 0, `source-ranges ${VIP} . 192.0.2.1`),
    "the node may use the address itself as source",
  );
  const refusing = { ...plan, external: testForward() };
  assertEquals(
    texts(entryOf({ ...refusing, externalFromCluster: testForward() }, "LoadBalancer")),
    [
      `service-ips ${VIP} : ${nameNumber("reject-all")}`,
    ],
  );
});

Deno.test("elementsOf() drops in silence if clients from outside are to have no answer", () => {
  const unreachable = { externalIps: ["192.0.2.1"], loadBalancerVips: ["192.0.2.2"] };
  const drop = { kind: "drop" } as const;
  const plan = testServicePlan({ ...unreachable, external: drop, sourceRanges: [] });
  assertEquals(texts(entryOf(plan, "ClusterIP")).slice(0, 1), [
    `service-ips 127.96.0.1 . tcp . 80 : ${nameNumber("reject-all")}`,
  ]);
  assertEquals(texts(entryOf(plan, "ExternalIP")), [`service-ips ${VIP} : ${nameNumber("drop")}`]);
  assertEquals(texts(entryOf(plan, "LoadBalancer")), [
    `service-ips 192.0.2.2 . tcp . 80 : ${nameNumber("check-source-ranges")}`,
    "admitted 192.0.2.2 . tcp . 80 : drop",
  ]);
});

Deno.test("chainOf() distinguishes chains by their treatment of the sender", () => {
  const to = ["10.0.0.1:80"];
  const front = { externalIps: ["192.0.2.1"], nodePort: 30_000, to };
  const cases: readonly [Parameters<typeof testServicePlan>[0], Role, string | undefined][] = [
    [{ to }, "ClusterIP", "to-1"],
    [{ to, masqueradeInternal: "all" }, "ClusterIP", "masquerade-1"],
    [{ to, masqueradeInternal: "off-cluster" }, "ClusterIP", "off-cluster-1"],
    [{ to, affinityTimeoutSeconds: 60 }, "ClusterIP", "to-1-sticky-60"],
    [{}, "ClusterIP", undefined],
    [{ to }, "allocated", undefined],
    [front, "ExternalIP", "masquerade-1"],
    [{ ...front, externalTrafficPolicy: "Local" }, "NodePort", "node-port-local-1-1"],
    [{ ...front, ...POLICY_LOCAL, external: { kind: "drop" } }, "ExternalIP", "local-2-drop"],
  ];
  for (const [options, role, name] of cases) {
    assertEquals(chainNameOf(testServicePlan(options), role), name, `${role} ${name}`);
  }
});

Deno.test("arrangeEntry() leaves endpoints at their numbers", () => {
  const before = entryOf(testServicePlan({ to: ["10.0.0.1:80", "10.0.0.2:80"] }), "ClusterIP");
  const plan = testServicePlan({ to: ["10.0.0.0:80", "10.0.0.2:80"] });
  const addresses = ({ main }: Entry) => main.map(({ address }) => String(address));
  assertEquals(addresses(entryOf(plan, "ClusterIP", before)), ["10.0.0.0", "10.0.0.2"]);
  const more = testServicePlan({ to: ["10.0.0.0:80", "10.0.0.1:80", "10.0.0.2:80"] });
  assertEquals(addresses(entryOf(more, "ClusterIP", before)), ["10.0.0.1", "10.0.0.2", "10.0.0.0"]);
  assertEquals(addresses(entryOf(more, "ClusterIP")), ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
});

Deno.test("rangeText() writes a range of one address as that address", () => {
  const cases = { "10.0.0.1/32": "10.0.0.1", "fd00::1/128": "fd00::1", "fd00::/32": "fd00::/32" };
  for (const [range, text] of Object.entries(cases)) {
    assertEquals(rangeText(parseCidr(range)), text);
  }
});

const endpoints = (...names: readonly number[]) =>
  names.map((name) => testEndpoint(`10.0.0.${name}:80`));
const names = (list: readonly { readonly address: string }[]) =>
  list.map(({ address }) => Number(address.split(".")[3]));

Deno.test("arrangeEndpoints() gives new endpoints the numbers of removed ones", () => {
  const cases: readonly (readonly [previous: number[], wanted: number[], arranged: number[]])[] = [
    [[], [1, 2], [1, 2]],
    [[1, 2, 3], [2, 3, 4], [4, 2, 3]],
    [[1, 2, 3], [2, 3], [3, 2]],
    [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]],
    [[2, 3], [1, 2, 3], [2, 3, 1]],
    [[1, 2, 3], [], []],
    [[1, 2, 3, 4], [4], [4]],
  ];
  for (const [previous, wanted, arranged] of cases) {
    const found = arrangeEndpoints(endpoints(...wanted), endpoints(...previous));
    assertEquals(names(found), arranged, `${previous} → ${wanted}`);
  }
});

Deno.test("arrangeEndpoints() keeps the list of the plan if nothing is to be kept in place", () => {
  const wanted = endpoints(1, 2);
  assert(arrangeEndpoints(wanted, undefined) === wanted);
  assert(arrangeEndpoints(wanted, endpoints(1, 2)) === wanted);
});

Deno.test("arrangeEndpoints() has each endpoint once, and moves no more than it has to", () => {
  const list = fc.uniqueArray(fc.integer({ min: 1, max: 20 }), { maxLength: 12 });
  fc.assert(fc.property(list, list, (previous, wanted) => {
    const sorted = wanted.sort((left, right) => left - right);
    const arranged = names(arrangeEndpoints(endpoints(...sorted), endpoints(...previous)));
    assertEquals([...arranged].sort((left, right) => left - right), sorted);
    const stayed = previous.filter((name) => wanted.includes(name)).length;
    const kept = previous.filter((name, index) => arranged[index] === name).length;
    // Who stays has to move only where the list is too short for its number.
    const beyond = previous.slice(wanted.length).filter((name) => wanted.includes(name)).length;
    assert(kept >= stayed - beyond, `${previous} → ${sorted}: ${arranged}`);
  }));
});
