import { assert, assertEquals } from "@std/assert";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testForward, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { endpointNumber } from "./affinity_table.ts";
import { EndpointPicker, type PickRequest } from "./endpoint_picker.ts";

const [A, B, C, D] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"] as const;

function plan(...to: string[]): ServicePlan {
  return testServicePlan({ to });
}

function sticky(...to: string[]): ServicePlan {
  return testServicePlan({ to, affinityTimeoutSeconds: 60 });
}

function pick(picker: EndpointPicker, request: Partial<PickRequest> = {}): string | undefined {
  return picker.pick({ verdict: "internal", client: "c", now: 0, ...request })?.key;
}

function picks(picker: EndpointPicker, count: number): (string | undefined)[] {
  return Array.from({ length: count }, () => pick(picker));
}

function excluding(...keys: string[]): ReadonlySet<EndpointKey> {
  return new Set(keys as EndpointKey[]);
}

Deno.test("EndpointPicker.pick() rotates exactly", () => {
  assertEquals(picks(new EndpointPicker(plan(A, B, C)), 7), [A, B, C, A, B, C, A]);
});

Deno.test("EndpointPicker.pick() begins at the given index", async (t) => {
  for (const [start, first] of [[0, A], [0.34, B], [0.99, C]] as const) {
    await t.step(`start ${start}`, () => {
      assertEquals(pick(new EndpointPicker(plan(A, B, C), { start })), first);
      const later = new EndpointPicker(plan(), { start });
      assertEquals(pick(later), undefined);
      later.update(plan(A, B, C), 0);
      assertEquals(pick(later), first);
    });
  }
});

Deno.test("EndpointPicker.pick() has a rotation for each verdict", () => {
  const picker = new EndpointPicker(
    testServicePlan({ internal: testForward(A, B), external: testForward(B, C) }),
  );
  const verdicts = ["internal", "external", "internal", "external", "externalFromCluster"] as const;
  assertEquals(verdicts.map((verdict) => pick(picker, { verdict })), [A, B, B, C, B]);
});

Deno.test("EndpointPicker.pick() has nothing for a verdict that does not forward", () => {
  const picker = new EndpointPicker(
    testServicePlan({ to: [A], external: { kind: "drop" } }),
  );
  assertEquals(pick(picker, { verdict: "external" }), undefined);
  assertEquals(pick(picker), A);
});

Deno.test("EndpointPicker.update() leaves the turn where it was", async (t) => {
  const cases: [string, string[], string][] = [
    ["same endpoints", [A, B, C], B],
    ["one before the turn goes", [B, C], B],
    ["the one whose turn it is goes", [A, C], C],
    ["all from the turn on go", [A], A],
    ["one comes", [A, B, C, D], B],
  ];
  for (const [name, after, expected] of cases) {
    await t.step(name, () => {
      const picker = new EndpointPicker(plan(A, B, C));
      pick(picker);
      picker.update(plan(...after), 0);
      assertEquals(pick(picker), expected);
    });
  }
});

Deno.test("EndpointPicker.pick() skips excluded endpoints", async (t) => {
  const cases: [string, string[], string | undefined][] = [
    ["the one whose turn it is", [A], B],
    ["all but the last", [A, B], C],
    ["all", [A, B, C], undefined],
  ];
  for (const [name, exclude, expected] of cases) {
    await t.step(name, () => {
      const picker = new EndpointPicker(plan(A, B, C));
      assertEquals(pick(picker, { exclude: excluding(...exclude) }), expected);
    });
  }
});

Deno.test("EndpointPicker.pick() keeps a client with its endpoint", () => {
  const picker = new EndpointPicker(sticky(A, B));
  const clients = ["x", "y", "x", "x", "y"];
  assertEquals(clients.map((client) => pick(picker, { client })), [A, B, A, A, B]);
});

Deno.test("EndpointPicker.pick() lets affinity slide and end", () => {
  const picker = new EndpointPicker(sticky(A, B, C));
  const times = [0, 59_000, 118_000, 177_999, 237_999];
  assertEquals(times.map((now) => pick(picker, { now })), [A, A, A, A, B]);
});

Deno.test("EndpointPicker.pick() keeps affinity over endpoint changes", () => {
  const picker = new EndpointPicker(sticky(A, B));
  assertEquals([pick(picker, { client: "x" }), pick(picker, { client: "y" })], [A, B]);
  picker.update(sticky(A, B, C), 0);
  assertEquals([pick(picker, { client: "x" }), pick(picker, { client: "y" })], [A, B]);
});

Deno.test("EndpointPicker.pick() binds a client to another endpoint when its endpoint is gone, and no other client", () => {
  const picker = new EndpointPicker(sticky(A, B, C));
  for (const client of ["x", "y", "z"]) pick(picker, { client });
  picker.update(sticky(B, C), 0);
  assertEquals(pick(picker, { client: "y" }), B);
  const moved = pick(picker, { client: "x" });
  assert(moved === B || moved === C);
  picker.update(sticky(A, B, C), 0);
  assertEquals(pick(picker, { client: "x" }), moved);
  assertEquals(pick(picker, { client: "z" }), C);
});

Deno.test("EndpointPicker.pick() binds a client to another endpoint when its endpoint is excluded", () => {
  const picker = new EndpointPicker(sticky(A, B));
  assertEquals(pick(picker), A);
  assertEquals(pick(picker, { exclude: excluding(A) }), B);
  assertEquals(picks(picker, 2), [B, B]);
});

Deno.test("EndpointPicker.pick() shares affinity between verdicts if the endpoint allows", () => {
  const picker = new EndpointPicker(
    testServicePlan({
      internal: testForward(A, B),
      external: testForward(B),
      affinityTimeoutSeconds: 60,
    }),
  );
  assertEquals(pick(picker), A);
  assertEquals(pick(picker, { verdict: "external" }), B);
  assertEquals(pick(picker), B);
});

Deno.test("EndpointPicker remembers as many clients as it has place for, the last ones", () => {
  const picker = new EndpointPicker(sticky(A, B, C));
  const client = (index: number) => `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
  const remembers = (index: number, now: number) =>
    picker.remembered(client(index), now) !== undefined;
  for (let index = 0; index < 200_000; index++) {
    pick(picker, { client: client(index), now: index / 10 });
  }
  const last = Array.from({ length: 1000 }, (_, index) => remembers(199_999 - index, 20_000));
  const first = Array.from({ length: 1000 }, (_, index) => remembers(index, 20_000));
  assertEquals(last.filter((isKnown) => !isKnown), []);
  const known = first.filter((isKnown) => isKnown).length;
  assert(known < 100, `${known} of the first clients are remembered`);
});

Deno.test("EndpointPicker.update() forgets all clients when affinity is switched off", () => {
  const picker = new EndpointPicker(sticky(A, B));
  pick(picker);
  picker.update(plan(A, B), 0);
  assertEquals(picker.remembered("c", 0), undefined);
  assertEquals(picks(picker, 2), [B, A]);
});

Deno.test("EndpointPicker.allows() follows the plan", () => {
  const picker = new EndpointPicker(plan(A));
  assertEquals(picker.allows("internal", A as EndpointKey), true);
  picker.update(plan(B), 0);
  assertEquals(picker.allows("internal", A as EndpointKey), false);
  assertEquals(picker.allows("internal", B as EndpointKey), true);
  picker.update(testServicePlan({ to: [A], edge: { balance: "source-hash" } }), 0);
  assertEquals(picker.allows("internal", B as EndpointKey), false);
});

Deno.test("EndpointPicker tells two endpoints of one number apart, and gives a client one of them", () => {
  const [one, two] = ["10.244.8.6:8080", "10.244.9.106:8080"] as const;
  assertEquals(endpointNumber(one as EndpointKey), endpointNumber(two as EndpointKey));
  const picker = new EndpointPicker(sticky(A, one, two));
  for (const key of [A, one, two]) assert(picker.allows("internal", key as EndpointKey), key);
  for (const client of ["c", "d", "e"]) {
    const [first, ...later] = [0, 1, 2].map((now) => pick(picker, { client, now }));
    assertEquals(later, [first, first]);
  }
  // A client whose dial to one of them failed gets the other one.
  assertEquals(pick(picker, { client: "f", exclude: excluding(A, one) }), two);
});

Deno.test("EndpointPicker counts a connection for the endpoint that it gives, of two of one number", () => {
  const [one, two] = ["10.244.8.6:8080", "10.244.9.106:8080"] as const;
  const edge = { balance: "least-connections" } as const;
  const picker = new EndpointPicker({ ...sticky(one, two), edge });
  const picked = ["c", "d", "e"].map((client) => pick(picker, { client }));
  assertEquals(picked, [one, one, one]);
  assertEquals([one, two].map((key) => picker.load?.of(key as EndpointKey)), [3, 0]);
});

Deno.test("EndpointPicker.remembered() returns the endpoint of a client and the remaining time, and binds no client", () => {
  const picker = new EndpointPicker(sticky(A, B));
  assertEquals(picker.remembered("c", 0), undefined);
  pick(picker, { now: 1_000 });
  assertEquals<unknown>(picker.remembered("c", 11_000), { endpoint: A, expiresInSeconds: 50 });
  assertEquals(picker.remembered("d", 11_000), undefined);
  assertEquals(picker.remembered("c", 61_000), undefined);
  assertEquals(new EndpointPicker(plan(A)).remembered("c", 0), undefined);
});

Deno.test("EndpointPicker.skip() leaves out unhealthy endpoints unless too few others remain", () => {
  const keys: string[] = [A, B, C];
  const endpoints = keys as EndpointKey[];
  for (const balance of [undefined, "least-connections", "source-hash"] as const) {
    const plan = testServicePlan({
      to: keys,
      edge: { ...(balance && { balance }), healthThreshold: 50 },
    });
    const picker = new EndpointPicker(plan);
    const picked = () => {
      const clients = Array.from({ length: 40 }, (_, index) => `192.0.2.${index}`);
      const found = clients.map((client) => picker.pick({ verdict: "internal", client, now: 0 }));
      for (const endpoint of found) picker.load?.remove(endpoint!.key);
      return [...new Set(found.map((endpoint) => `${endpoint?.key}`))].sort();
    };
    assertEquals(picked(), keys);
    picker.skip(new Set(endpoints.slice(0, 1)), 0);
    assertEquals(picked(), keys.slice(1));
    assert(!picker.allows("internal", endpoints[0]!));
    picker.skip(new Set(endpoints.slice(0, 2)), 0);
    assertEquals(picked(), keys, "33% are healthy, less than 50%");
    picker.update({ ...plan, edge: { ...plan.edge, healthThreshold: 30 } }, 0);
    assertEquals(picked(), keys.slice(2));
    picker.skip(new Set(endpoints), 0);
    assertEquals(picked(), keys, "none is healthy");
    picker.skip(new Set(), 0);
    assertEquals(picked(), keys);
  }
});

Deno.test("EndpointPicker.skip() moves a client with affinity, and lets an endpoint return slowly", () => {
  const plan = testServicePlan({
    to: [A, B],
    affinityTimeoutSeconds: 60,
    edge: { slowStartMs: 100_000 },
  });
  const picker = new EndpointPicker(plan);
  const pick = (client: string, now: number) =>
    picker.pick({ verdict: "internal", client, now })!.key;
  const first = pick("192.0.2.1", 0);
  picker.skip(new Set([first]), 0);
  assert(pick("192.0.2.1", 0) !== first);
  picker.skip(new Set(), 1000);
  const counts = Array.from({ length: 110 }, (_, index) => pick(`198.51.100.${index}`, 1000));
  assertEquals(counts.filter((key) => key === first).length, 10);
});
