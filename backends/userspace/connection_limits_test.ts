import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ServiceKey, ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ServiceLimits } from "./connection_limits.ts";

const SERVICE = "default/web" as ServiceKey;
const CLIENTS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

/** A port whose number of open connections the test sets. */
function testPort() {
  return { key: "default/web:http" as ServicePortKey, connections: 0 };
}

type Settings = Parameters<ServiceLimits["update"]>[1]["settings"];

function limitsOf(settings: Settings) {
  return new ServiceLimits().update(SERVICE, { port: testPort(), settings, now: 0 })!;
}

Deno.test("ServiceLimits has none for a Service without a limit", () => {
  const limits = new ServiceLimits();
  assertEquals(limits.update(SERVICE, { port: testPort(), settings: {}, now: 0 }), undefined);
  assertEquals(limits.size, 0);
});

Deno.test("ServiceLimits counts the connections of all ports of a Service together", () => {
  const limits = new ServiceLimits();
  const [http, dns] = [testPort(), testPort()];
  const settings = { maxConnections: 3, maxPerClient: 2 };
  const shared = limits.update(SERVICE, { port: http, settings, now: 0 })!;
  assert(limits.update(SERVICE, { port: dns, settings, now: 0 }) === shared);
  const other = limits.update("default/other" as ServiceKey, {
    port: testPort(),
    settings,
    now: 0,
  });
  assert(other !== shared);
  const admit = (client: string, port: ReturnType<typeof testPort>) => {
    const reached = shared.admit(client, { port, open: port.connections, now: 0 });
    if (reached === undefined) port.connections++;
    return reached?.limit;
  };
  assertEquals([admit("a", http), admit("a", dns)], [undefined, undefined]);
  assertEquals([admit("a", http), admit("a", dns)], Array(2).fill("max-connections-per-client"));
  assertEquals(admit("b", dns), undefined);
  assertEquals([admit("c", http), admit("c", dns)], ["max-connections", "max-connections"]);
  limits.leave(SERVICE, dns);
  assertEquals(admit("c", http), undefined, "connections of a removed port do not count");
  limits.leave(SERVICE, http);
  assertEquals(limits.size, 1, "the other Service");
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
      const port = testPort();
      const open: string[] = [];
      for (const { client, leaves } of list) {
        const own = open.filter((each) => each === client).length;
        if (leaves) {
          if (own === 0) continue;
          open.splice(open.indexOf(client), 1);
          limits.leave(client);
          continue;
        }
        const reached = limits.admit(client, { port, open: open.length, now: 0 });
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
  const port = testPort();
  const admitted = (now: number) => {
    let count = 0;
    while (limits.admit("c", { port, open: 0, now }) === undefined) count++;
    return count;
  };
  assertEquals([0, 0, 99, 100, 350, 60_000].map(admitted), [10, 0, 0, 1, 2, 10]);
});

Deno.test("ConnectionLimits.update() keeps the counts and neither gives nor takes a burst", () => {
  const limits = limitsOf({ maxPerClient: 2, maxPerSecond: 2 });
  const port = testPort();
  for (let count = 0; count < 2; count++) limits.admit("c", { port, open: count, now: 0 });
  limits.update({ maxPerClient: 3, maxPerSecond: 2 });
  const request = { port, open: 2, now: 0 };
  assertEquals(limits.admit("c", request)?.limit, "max-new-connections-per-second");
  limits.update({ maxPerClient: 3 });
  assertEquals(limits.admit("c", request), undefined);
  assertEquals(limits.admit("c", request)?.limit, "max-connections-per-client");
});
