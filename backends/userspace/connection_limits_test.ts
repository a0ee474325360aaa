import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { ConnectionLimits } from "./connection_limits.ts";

const CLIENTS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

function limitsOf(settings: Parameters<typeof ConnectionLimits.updated>[1]["settings"]) {
  return ConnectionLimits.updated(undefined, { settings, now: 0 })!;
}

Deno.test("ConnectionLimits do not exist without a limit", () => {
  assertEquals(ConnectionLimits.updated(undefined, { settings: {}, now: 0 }), undefined);
});

Deno.test("ConnectionLimits never let more in than each limit allows, and let in again what left", () => {
  const steps = fc.array(
    fc.record({ client: fc.constantFrom(...CLIENTS), leaves: fc.boolean() }),
    { maxLength: 200 },
  );
  const settings = fc.record({
    maxConnections: fc.integer({ min: 1, max: 6 }),
    maxPerClient: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(steps, settings, (list, settings) => {
      const limits = limitsOf(settings);
      const open: string[] = [];
      for (const { client, leaves } of list) {
        const own = open.filter((each) => each === client).length;
        if (leaves) {
          if (own === 0) continue;
          open.splice(open.indexOf(client), 1);
          limits.leave(client);
          continue;
        }
        const reached = limits.admit(client, { open: open.length, now: 0 });
        const expected = open.length >= settings.maxConnections
          ? { limit: "max-connections", bound: settings.maxConnections }
          : own >= settings.maxPerClient
          ? { limit: "max-connections-per-client", bound: settings.maxPerClient }
          : undefined;
        assertEquals(reached as unknown, expected);
        if (reached === undefined) open.push(client);
      }
    }),
    { seed: 18 },
  );
});

Deno.test("ConnectionLimits refill the rate with time, up to one second's worth", () => {
  const limits = limitsOf({ maxPerSecond: 10 });
  const admitted = (now: number) => {
    let count = 0;
    while (limits.admit("c", { open: 0, now }) === undefined) count++;
    return count;
  };
  assertEquals([0, 0, 99, 100, 350, 60_000].map(admitted), [10, 0, 0, 1, 2, 10]);
});

Deno.test("ConnectionLimits.updated() keeps the counts and neither gives nor takes a burst", () => {
  const limits = limitsOf({ maxPerClient: 2, maxPerSecond: 2 });
  for (let count = 0; count < 2; count++) limits.admit("c", { open: count, now: 0 });
  const settings = { maxPerClient: 3, maxPerSecond: 2 };
  assert(ConnectionLimits.updated(limits, { settings, now: 0 }) === limits);
  const request = { open: 2, now: 0 };
  assertEquals(limits.admit("c", request)?.limit, "max-new-connections-per-second");
  ConnectionLimits.updated(limits, { settings: { maxPerClient: 3 }, now: 0 });
  assertEquals(limits.admit("c", request), undefined);
  assertEquals(limits.admit("c", request)?.limit, "max-connections-per-client");
});
