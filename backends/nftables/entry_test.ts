import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { FrontendRole, ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  testEndpoint,
  testForward,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { assert, assertEquals } from "@std/assert";
import {
  arrangeEndpoints,
  arrangeEntry,
  claimsOf,
  elementsOf,
  type Entry,
  foundSlots,
  frontendAt,
  rangeText,
} from "./entry.ts";
import { SlotAllocator, type Slots } from "./slots.ts";

type Role = FrontendRole | "allocated";

const ENDPOINTS = ["10.0.0.1:80", "10.0.0.2:8080"];
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

const STICKY_LOCAL = testServicePlan({
  externalIps: ["192.0.2.1"],
  nodePort: 30_080,
  affinityTimeoutSeconds: 60,
  ...POLICY_LOCAL,
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
    const found = new Map<string, Map<string, string>>();
    for (const id of own) {
      const entry = arrangeEntry(id, STICKY_LOCAL, { slots });
      for (const { kind, name, text } of elementsOf(entry)) {
        found.set(kind, (found.get(kind) ?? new Map()).set(name, text));
      }
    }
    const expected = role === "ClusterIP" ? [] : [...slots];
    assertEquals([...foundSlots(own, STICKY_LOCAL, found)].sort(), expected.sort(), role);
  }
  assertEquals(foundSlots(claims, STICKY_LOCAL, new Map()).size, 0);
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
