import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { randomFrom } from "../../tests/support/builders/seeded_random.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { EndpointPicker, type PickRequest } from "./endpoint_picker.ts";

const [A, B, C, D] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"] as const;

function planOf(edge: EdgeSettings, ...to: string[]) {
  return testServicePlan({ to: to.toSorted(), edge });
}

function pickerOf(edge: EdgeSettings, ...to: string[]): EndpointPicker {
  return new EndpointPicker(planOf(edge, ...to), { random: randomFrom(7) });
}

/** Picks for a connection that stays open. */
function open(picker: EndpointPicker, request: Partial<PickRequest> = {}): string {
  return picker.pick({ verdict: "internal", client: "c", now: 0, ...request })!.key;
}

function openMany(picker: EndpointPicker, count: number, now = 0): readonly string[] {
  return Array.from({ length: count }, () => open(picker, { now }));
}

function shares(keys: readonly string[]): Record<string, number> {
  return Object.fromEntries(
    [...Map.groupBy(keys, (key) => key)].map(([key, list]) => [key, list.length] as const).sort(),
  );
}

function weights(...list: readonly (readonly [string, number])[]): EdgeSettings {
  return {
    weights: list.map(([address, weight]) => ({ address: parseIpAddress(address), weight })),
  };
}

Deno.test("EndpointPicker.pick() without settings counts no connections", () => {
  assertEquals(new EndpointPicker(planOf({}, A)).load, undefined);
  assertEquals(new EndpointPicker(planOf({ maxConnections: 3 }, A)).load, undefined);
});

Deno.test("EndpointPicker.pick() interleaves turns by weight", () => {
  const picker = pickerOf(weights(["10.0.0.1", 3], ["10.0.0.3", 2]), A, B, C);
  const keys = openMany(picker, 600);
  assertEquals(shares(keys), { [A]: 300, [B]: 100, [C]: 200 });
  for (let from = 0; from + 6 <= 60; from += 6) {
    assert(shares(keys.slice(from, from + 6))[A]! <= 4, `not in a row: ${keys.slice(0, 60)}`);
  }
});

Deno.test("EndpointPicker.pick() prefers a weight for address and port to one for the address", () => {
  const [address, port] = [parseIpAddress("10.0.0.1"), 80];
  const picker = pickerOf(
    {
      weights: [{ address, weight: 9 }, { address, port: port as never, weight: 3 }],
    },
    A,
    B,
  );
  assertEquals(shares(openMany(picker, 40)), { [A]: 30, [B]: 10 });
});

Deno.test("EndpointPicker.pick() chooses the endpoint with the fewest connections", () => {
  const picker = pickerOf({ balance: "least-connections" }, A, B, C);
  assertEquals(openMany(picker, 6), [A, B, C, A, B, C]);
  for (const key of [B, B, C]) picker.load?.remove(key as EndpointKey);
  assertEquals(openMany(picker, 4), [B, C, B, A]);
});

Deno.test("EndpointPicker.pick() weighs connections by weight", () => {
  const edge = { balance: "least-connections", ...weights(["10.0.0.2", 4]) } as const;
  assertEquals(shares(openMany(pickerOf(edge, A, B), 50)), { [A]: 10, [B]: 40 });
});

Deno.test("EndpointPicker.pick() levels the load of verdicts that share endpoints", () => {
  const picker = pickerOf({ balance: "least-connections" }, A, B);
  const keys = Array.from(
    { length: 20 },
    (_, index) => open(picker, { verdict: index % 2 === 0 ? "internal" : "external" }),
  );
  assertEquals(shares(keys), { [A]: 10, [B]: 10 });
});

Deno.test("EndpointPicker.pick() with two random choices keeps the load level", () => {
  const to = Array.from({ length: 50 }, (_, index) => `10.0.1.${index}:80`);
  const counts = Object.values(
    shares(openMany(pickerOf({ balance: "random-two-choices" }, ...to), 5000)),
  );
  assertEquals(counts.length, 50);
  assert(Math.max(...counts) <= 105 && Math.min(...counts) >= 90, `${counts}`);
});

Deno.test("EndpointPicker.pick() with two random choices heeds weights", () => {
  const edge = { balance: "random-two-choices", ...weights(["10.0.0.1", 3]) } as const;
  const { [A]: heavy = 0 } = shares(openMany(pickerOf(edge, A, B), 4000));
  assert(heavy >= 2900 && heavy <= 3100, String(heavy));
});

const METHODS: readonly EdgeSettings[] = [
  weights(["10.0.0.1", 2]),
  { balance: "least-connections" },
  { balance: "random-two-choices" },
  { balance: "source-hash" },
];
for (const edge of METHODS) {
  const name = edge.balance ?? "weighted round-robin";
  Deno.test(`EndpointPicker.pick() by ${name} passes over endpoints that failed`, () => {
    const picker = pickerOf(edge, A, B, C);
    const exclude = new Set([A, C] as unknown as EndpointKey[]);
    for (let count = 0; count < 10; count++) assertEquals(open(picker, { exclude }), B);
    const all = new Set([A, B, C] as unknown as EndpointKey[]);
    const request = { verdict: "internal", client: "c", now: 0 } as const;
    assertEquals(picker.pick({ ...request, exclude: all }), undefined);
    picker.update(planOf(edge), 0);
    assertEquals(picker.pick(request), undefined);
    picker.update(planOf(edge, D), 0);
    assertEquals(open(picker), D);
  });
}

Deno.test("EndpointPicker.update() applies other settings and keeps the counts", () => {
  const picker = pickerOf({ balance: "least-connections" }, A, B);
  const { load } = picker;
  openMany(picker, 4);
  picker.update(planOf({ balance: "random-two-choices" }, A, B), 0);
  assertEquals([picker.load === load, load?.of(A as EndpointKey)], [true, 2]);
  picker.update(planOf({}, A, B), 0);
  assertEquals(picker.load, undefined);
});

const endpointCount = fc.integer({ min: 2, max: 150 });
const CLIENTS = Array.from({ length: 2000 }, (_, index) => `10.${index >> 8}.1.${index & 255}`);

function choices(picker: EndpointPicker): readonly string[] {
  return CLIENTS.map((client) => open(picker, { client }));
}

Deno.test("EndpointPicker.pick() by source-hash moves only the clients of an endpoint that goes or comes", () => {
  fc.assert(
    fc.property(endpointCount, fc.nat(), fc.integer({ min: 1, max: 9 }), (count, pick, weight) => {
      const to = Array.from({ length: count }, (_, index) => `10.0.${index >> 4}.${index & 15}:80`);
      const edge = { balance: "source-hash", ...weights(["10.0.0.1", weight]) } as const;
      const gone = to[pick % count]!;
      const picker = pickerOf(edge, ...to);
      const before = choices(picker);
      picker.update(planOf(edge, ...to.filter((each) => each !== gone)), 0);
      const between = choices(picker);
      for (const [index, key] of before.entries()) {
        if (key === gone) assert(between[index] !== gone);
        else assertEquals(between[index], key);
      }
      picker.update(planOf(edge, ...to), 0);
      assertEquals(choices(picker), before);
    }),
    { numRuns: 30, seed: 18 },
  );
});

Deno.test("EndpointPicker.pick() by source-hash spreads clients by weight", () => {
  const edge = { balance: "source-hash", ...weights(["10.0.0.4", 3]) } as const;
  const { [A]: one = 0, [D]: three = 0 } = shares(choices(pickerOf(edge, A, B, C, D)));
  assert(one > 260 && one < 410, `a sixth of 2000: ${one}`);
  assert(three > 900 && three < 1100, `half of 2000: ${three}`);
});

for (const balance of ["round-robin", "least-connections", "random-two-choices"] as const) {
  Deno.test(`EndpointPicker.pick() by ${balance} starts an endpoint that appears slowly`, () => {
    const edge = { balance, slowStartMs: 10_000 };
    const picker = pickerOf(edge, A, B);
    openMany(picker, 200);
    picker.update(planOf(edge, A, B, C), 1000);
    const share = (now: number) => {
      const keys = openMany(picker, 300, now);
      for (const key of keys) picker.load?.remove(key as EndpointKey);
      return shares(keys)[C] ?? 0;
    };
    const [first, half, full] = [share(1000), share(6000), share(11_000)];
    if (balance === "round-robin") {
      assert(first <= 16 && half >= 50 && half <= 64, `${[first, half, full]}`);
      assert(full >= 95 && full <= 105, `${[first, half, full]}`);
      return;
    }
    // The shares of 500 connections at weights 1 : 1 : 0.1, 0.5 and 1.
    for (const [found, expected] of [[first, 23.8], [half, 100], [full, 166.7]] as const) {
      assert(Math.abs(found - expected) <= 3, `${[first, half, full]}`);
    }
  });
}

Deno.test("EndpointPicker starts no endpoint slowly that was there at first", () => {
  const keys = openMany(pickerOf({ slowStartMs: 10_000 }, A, B), 20);
  assertEquals(shares(keys), { [A]: 10, [B]: 10 });
});

Deno.test("EndpointPicker.pick() looks at few endpoints while their shares are equal", () => {
  const to = Array.from({ length: 500 }, (_, index) => `10.0.${index >> 8}.${index & 255}:80`);
  const edge: EdgeSettings = { slowStartMs: 10_000 };
  const picker = pickerOf(edge, ...to.slice(1));
  open(picker);
  picker.update(planOf(edge, ...to), 0);
  const looked = (now: number) => {
    let looks = 0;
    const exclude = new Set<EndpointKey>();
    exclude.has = () => ++looks === 0;
    open(picker, { now, exclude });
    return looks;
  };
  assertEquals([looked(9_999), looked(10_000)], [500, 1]);
});

for (const start of [0, 0.5]) {
  Deno.test(`EndpointPicker.update() puts a new endpoint after the last chosen one, start ${start}`, () => {
    const edge = { balance: "least-connections" } as const;
    const picker = new EndpointPicker(planOf(edge, B), { start });
    const use = () => {
      const key = open(picker);
      picker.load?.remove(key as EndpointKey);
      return key;
    };
    use();
    const added = start === 0 ? A : C;
    picker.update(planOf(edge, B, added), 0);
    assertEquals([use(), use(), use()], [B, added, B]);
  });
}
