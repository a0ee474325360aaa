import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { assertEquals, assertStrictEquals } from "@std/assert";
import {
  testEndpoint,
  testNodeState,
  testServicePort,
} from "../../tests/support/builders/builders.ts";
import {
  applyChanges,
  createProxyState,
  type DirtyState,
  type MutableProxyState,
} from "./proxy_state.ts";
import type { ServicePort } from "./service_port.ts";
import { servicePortKey } from "./service_port_name.ts";

const WEB = testServicePort();
const { key: KEY } = WEB;
const OTHER_KEY = servicePortKey({ namespace: "ns1", name: "api", port: "", protocol: "TCP" });
const ENDPOINTS = [testEndpoint("10.180.0.1"), testEndpoint("10.180.0.2")];
const NOTHING: DirtyState = { keys: new Set(), shared: false, everything: false };

function upsert(...servicePorts: readonly ServicePort[]) {
  return {
    upserted: new Map(servicePorts.map((each) => [each.key, each])),
    removed: new Set<never>(),
  };
}

/** A state with one ServicePort and its endpoints, not fresh any more. */
function startedState(): MutableProxyState {
  const state = createProxyState(testNodeState());
  applyChanges(state, {
    services: upsert(WEB),
    endpoints: { endpoints: new Map([[KEY, ENDPOINTS]]) },
  });
  return state;
}

Deno.test("applyChanges() touches everything the first time, even without changes", () => {
  const state = createProxyState(testNodeState());
  assertEquals(applyChanges(state, {}), { ...NOTHING, shared: true, everything: true });
  assertEquals(applyChanges(state, {}), NOTHING);
});

Deno.test("applyChanges() writes new and changed ServicePorts", () => {
  const state = startedState();
  const changed = testServicePort({ affinityTimeoutSeconds: 60 });
  const dirty = applyChanges(state, { services: upsert(changed) });
  assertEquals(dirty, { ...NOTHING, keys: new Set([KEY]) });
  assertStrictEquals(state.services.get(KEY), changed);
});

Deno.test("applyChanges() leaves an equal ServicePort alone", () => {
  const state = startedState();
  assertEquals(applyChanges(state, { services: upsert(structuredClone(WEB)) }), NOTHING);
  assertStrictEquals(state.services.get(KEY), WEB);
});

Deno.test("applyChanges() removes ServicePorts, and ignores unknown ones", () => {
  const state = startedState();
  const removed = new Set([KEY, OTHER_KEY]);
  const dirty = applyChanges(state, { services: { upserted: new Map(), removed } });
  assertEquals(dirty, { ...NOTHING, keys: new Set([KEY]) });
  assertEquals(state.services.size, 0);
});

Deno.test("applyChanges() writes changed endpoints, also those of no Service yet", () => {
  const state = startedState();
  const endpoints = new Map([[KEY, ENDPOINTS.slice(1)], [OTHER_KEY, ENDPOINTS]]);
  const dirty = applyChanges(state, { endpoints: { endpoints } });
  assertEquals(dirty, { ...NOTHING, keys: new Set([KEY, OTHER_KEY]) });
  assertEquals(state.endpoints.get(KEY), ENDPOINTS.slice(1));
  assertEquals(state.endpoints.get(OTHER_KEY), ENDPOINTS);
});

Deno.test("applyChanges() leaves equal endpoints alone", () => {
  const state = startedState();
  const endpoints = new Map([[KEY, structuredClone(ENDPOINTS)]]);
  assertEquals(applyChanges(state, { endpoints: { endpoints } }), NOTHING);
  assertStrictEquals(state.endpoints.get(KEY), ENDPOINTS);
});

Deno.test("applyChanges() has no entry for a ServicePort without endpoints", () => {
  const state = startedState();
  const endpoints = new Map([[KEY, []], [OTHER_KEY, []]]);
  const dirty = applyChanges(state, { endpoints: { endpoints } });
  assertEquals(dirty, { ...NOTHING, keys: new Set([KEY]) });
  assertEquals(state.endpoints.size, 0);
});

const NODE = testNodeState();

/** Changes of the shared part, with the ServicePorts that each affects. */
const SHARED_ROWS = [
  {
    name: "an equal Node touches nothing",
    changes: { node: structuredClone(NODE) },
    shared: false,
    everything: false,
  },
  {
    name: "a Node address touches the shared part",
    changes: { node: { ...NODE, addresses: [] } },
    shared: true,
    everything: false,
  },
  {
    name: "a zone touches everything",
    changes: { node: { ...NODE, zone: "zone-b" } },
    shared: true,
    everything: true,
  },
  {
    name: "a removed zone touches everything",
    changes: { node: { name: NODE.name, addresses: NODE.addresses, podCidrs: [] } },
    shared: true,
    everything: true,
  },
  {
    name: "a node name touches everything",
    changes: { node: { ...NODE, name: "node-z" } },
    shared: true,
    everything: true,
  },
  {
    name: "Service CIDRs touch the shared part",
    changes: { serviceCidrs: [parseCidr("172.30.0.0/16")] },
    shared: true,
    everything: false,
  },
  {
    name: "equal Service CIDRs touch nothing",
    changes: { serviceCidrs: [] },
    shared: false,
    everything: false,
  },
  {
    name: "interface addresses touch the shared part",
    changes: { interfaceAddresses: [parseIpAddress("192.168.0.2")] },
    shared: true,
    everything: false,
  },
] as const;

for (const { name, changes, shared, everything } of SHARED_ROWS) {
  Deno.test(`applyChanges(): ${name}`, () => {
    const state = startedState();
    assertEquals(applyChanges(state, changes), { ...NOTHING, shared, everything });
    assertEquals(applyChanges(state, structuredClone(changes)), NOTHING);
  });
}
