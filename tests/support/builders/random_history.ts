/**
 * Random histories of a small cluster, for property tests: objects come, change and go, and syncs
 * succeed, fail, or half succeed.
 *
 * @module
 */
import fc from "fast-check";
import type { EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../../lib/api/kinds/endpoints.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { ProxyState } from "../../../lib/proxy/proxy_plan.ts";
import { THIS_NODE } from "./address_plan.ts";
import { testEndpoints, testEndpointSlice, testNodeState, testService } from "./builders.ts";

/** One thing that happens. An absent object means that it is deleted. */
export type HistoryEvent =
  | { readonly kind: "service"; readonly name: string; readonly object: Service | undefined }
  | { readonly kind: "slice"; readonly name: string; readonly object: EndpointSlice | undefined }
  | { readonly kind: "endpoints"; readonly name: string; readonly object: Endpoints | undefined }
  | { readonly kind: "shared"; readonly changes: Partial<ProxyState> }
  | { readonly kind: "sync"; readonly outcome: "ok" | "nothing" | "half" };

/** Few, so that histories come back to the same objects. */
const NAMES = ["a", "b"];
const policy = fc.constantFrom("Cluster", "Local");
/** Mostly one and the same, so that Services and slices meet. */
const port = fc.oneof(
  { arbitrary: fc.constant({ name: "x", port: 80, protocol: "TCP", nodePort: 0 }), weight: 3 },
  {
    arbitrary: fc.record({
      name: fc.constantFrom("x", "y"),
      port: fc.constantFrom(80, 81),
      protocol: fc.constantFrom("TCP", "UDP"),
      nodePort: fc.constantFrom(0, 30080, 30081),
    }),
    weight: 1,
  },
);

const service = fc.constantFrom(...NAMES).chain((name) =>
  fc.record({
    kind: fc.constant("service" as const),
    name: fc.constant(name),
    object: fc.option(
      fc.record({
        type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer"),
        clusterIP: fc.constantFrom("172.30.0.1", "172.30.0.2", "172.30.0.3", "None", "nonsense"),
        ports: fc.array(port, { minLength: 1, maxLength: 3 }),
        internalTrafficPolicy: policy,
        externalTrafficPolicy: policy,
        externalIPs: fc.subarray(["192.168.99.11", "172.30.0.2", "nonsense"]),
        sessionAffinity: fc.constantFrom("None", "ClientIP"),
        creationTimestamp: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
      }).map(({ creationTimestamp, ...spec }) =>
        testService(name, spec, { metadata: { creationTimestamp } })
      ),
      { nil: undefined, freq: 4 },
    ),
  })
);

const condition = fc.constantFrom({}, {}, { ready: false }, {
  ready: false,
  serving: true,
  terminating: true,
});
const zones = fc.constantFrom("zone-a", "zone-b").map((name) => ({ forZones: [{ name }] }));
/** Hints count only where every endpoint has one, so a slice has them throughout or not at all. */
const sliceEndpoints = fc.constantFrom(fc.constant({}), zones, zones).chain((hints) =>
  fc.array(
    fc.record({
      addresses: fc.constantFrom(["10.0.0.1"], ["10.0.0.2"], ["10.0.0.3"], ["nonsense"]),
      nodeName: fc.constantFrom(THIS_NODE, "node-b"),
      conditions: condition,
      hints,
    }),
    { maxLength: 3 },
  )
);

const slice = fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom("1", "2", "6")).chain((
  [name, suffix],
) =>
  fc.record({
    kind: fc.constant("slice" as const),
    name: fc.constant(`${name}-${suffix}`),
    object: fc.option(
      fc.record({
        endpoints: sliceEndpoints,
        ports: fc.array(port, { minLength: 1, maxLength: 2 }),
        creationTimestamp: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
      }).map(({ endpoints, ports, creationTimestamp }) =>
        testEndpointSlice(name, {
          name: `${name}-${suffix}`,
          addressType: suffix === "6" ? "IPv6" : "IPv4",
          endpoints,
          ports,
          metadata: { creationTimestamp },
        })
      ),
      { nil: undefined, freq: 5 },
    ),
  })
);

const endpoints = fc.constantFrom(...NAMES).chain((name) =>
  fc.record({
    kind: fc.constant("endpoints" as const),
    name: fc.constant(name),
    object: fc.option(
      fc.subarray(["10.0.0.1", "10.0.0.9"]).map((ips) =>
        testEndpoints(name, [{
          addresses: ips.map((ip) => ({ ip })),
          ports: [{ name: "x", port: 80 }],
        }])
      ),
      { nil: undefined, freq: 5 },
    ),
  })
);

const shared = fc.oneof(
  {
    arbitrary: fc.constantFrom("zone-a", "zone-b")
      .map((zone) => ({ node: testNodeState({ zone }) })),
    weight: 2,
  },
  {
    arbitrary: fc.subarray(["172.30.0.0/16", "172.31.0.0/16"])
      .map((cidrs) => ({ serviceCidrs: cidrs.map(parseCidr) })),
    weight: 1,
  },
  {
    arbitrary: fc.subarray(["192.168.0.2", "127.0.0.1"])
      .map((addresses) => ({ interfaceAddresses: addresses.map(parseIpAddress) })),
    weight: 1,
  },
).map((changes) => ({ kind: "shared" as const, changes }));

const sync = fc.constantFrom("ok", "ok", "nothing", "half")
  .map((outcome) => ({ kind: "sync" as const, outcome }));

/** Whole histories, of few objects and many changes of each. */
export const randomHistory: fc.Arbitrary<HistoryEvent[]> = fc.array(
  fc.oneof(
    { arbitrary: service, weight: 3 },
    { arbitrary: slice, weight: 4 },
    { arbitrary: endpoints, weight: 1 },
    { arbitrary: shared, weight: 2 },
    { arbitrary: sync, weight: 4 },
  ),
  // Short histories, which fast-check prefers, hardly ever come back to one object.
  { minLength: 20, maxLength: 80, size: "max" },
);
