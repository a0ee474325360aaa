import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import type { EndpointKey } from "./endpoint.ts";
import {
  type FlowQuery,
  FlowWatches,
  MOST_WATCHES,
  WATCH_TTL_MS,
  type WatchedFlow,
} from "./flow_watches.ts";
import type { ServicePortKey } from "./service_port_name.ts";

const QUERY: FlowQuery = {
  protocol: "TCP",
  to: parseIpAddress("10.96.0.1"),
  port: parsePort(80),
};
const FLOW: WatchedFlow = {
  ...QUERY,
  client: parseIpAddress("10.0.0.1"),
  clientPort: 40_000,
  service: "ns1/web:http/TCP" as ServicePortKey,
  endpoint: "10.1.0.1:8080" as EndpointKey,
};

Deno.test("FlowWatches reports events since a watch began, and only matching ones", () => {
  const watches = new FlowWatches();
  assertEquals(watches.isIdle, true);
  watches.report(FLOW, 0);
  assertEquals(watches.ask("a", { query: QUERY, now: 0 }), []);
  assertEquals(watches.isIdle, false);
  watches.ask("b", { query: { ...QUERY, sourcePort: 1 }, now: 0 });
  watches.ask("c", { query: { ...QUERY, from: parseIpAddress("10.0.0.2") }, now: 0 });
  watches.report(FLOW, 1);
  watches.report({ ...FLOW, protocol: "UDP" }, 1);
  watches.report({ ...FLOW, port: parsePort(81) }, 1);
  assertEquals(watches.ask("a", { query: QUERY, now: 2 }), [FLOW]);
  assertEquals(watches.ask("b", { query: QUERY, now: 2 }), []);
  assertEquals(watches.ask("c", { query: QUERY, now: 2 }), []);
});

Deno.test("a watch without a reader ends, and makes room", () => {
  const watches = new FlowWatches();
  for (let id = 0; id < MOST_WATCHES; id++) watches.ask(`${id}`, { query: QUERY, now: 0 });
  assertThrows(() => watches.ask("x", { query: QUERY, now: 1 }), RangeError, "already");
  watches.ask("0", { query: QUERY, now: WATCH_TTL_MS });
  watches.report(FLOW, WATCH_TTL_MS + 1);
  assertEquals(watches.ask("0", { query: QUERY, now: WATCH_TTL_MS + 1 }), [FLOW]);
  assertEquals(watches.ask("x", { query: QUERY, now: WATCH_TTL_MS + 1 }), []);
  watches.report(FLOW, 3 * WATCH_TTL_MS);
  assertEquals(watches.isIdle, true);
});

Deno.test("a watch keeps a bounded number of flows", () => {
  const watches = new FlowWatches();
  watches.ask("a", { query: QUERY, now: 0 });
  for (let each = 0; each < 1000; each++) watches.report(FLOW, 1);
  assertEquals(watches.ask("a", { query: QUERY, now: 1 }).length, 16);
});
