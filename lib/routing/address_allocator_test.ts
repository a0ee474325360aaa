import { assert, assertEquals } from "@std/assert";
import type { RoutedService } from "../api/kinds/routed_service.ts";
import { ProblemCollector } from "../api/problem.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parseLabelSelector } from "../policy/label_selector.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../proxy/service_port_name.ts";
import {
  loadBalancer,
  type LoadBalancerParts,
  pool,
} from "../../tests/support/builders/routed_objects.ts";
import { AddressAllocator } from "./address_allocator.ts";
import type { AddressPool } from "./address_pool.ts";
import { addressRequestOf } from "./address_request.ts";

const OWN_CLASS = "kube-relay.io/load-balancer";
const CLASSES = {
  loadBalancerClasses: [OWN_CLASS, "metallb.io/metallb"],
  defaultLoadBalancerClass: true,
};
const IPS = "kube-relay.io/load-balancer-ips";
const KEY = "kube-relay.io/load-balancer-sharing-key";

/** An allocator, and what it assigns, as text. */
class Stage {
  readonly allocator: AddressAllocator;

  constructor(...pools: readonly AddressPool[]) {
    this.allocator = new AddressAllocator(pools);
  }

  /** Gives Services and returns what they get, `name: addresses or refusals`. */
  give(...services: readonly (LoadBalancerParts | RoutedService)[]): readonly string[] {
    const keys = services.map((service) => {
      const object = "metadata" in service ? service : loadBalancer(service);
      const key = serviceKey(namespacedNameOf(object));
      this.allocator.setService(key, addressRequestOf(object, CLASSES));
      return key;
    });
    this.allocator.update();
    return keys.map((key) => this.#text(key));
  }

  #text(key: string): string {
    const found = this.allocator.assignment(key as ServiceKey);
    if (!found) return `${key}: nothing`;
    const words = [
      ...found.addresses ?? ["(left alone)"],
      ...found.refusals.map(({ message }) => `(${message})`),
    ];
    return `${key}: ${words.join(" ")}`;
  }
}

function selector(matchLabels: Readonly<Record<string, string>>) {
  const problems = new ProblemCollector("Pool", "test");
  return parseLabelSelector({ matchLabels }, "", problems);
}

Deno.test("AddressAllocator leaves alone what it did not give", () => {
  const stage = new Stage(pool("a", ["192.0.2.0/30"]));
  assertEquals(
    stage.give(
      { name: "other", spec: { loadBalancerClass: "example.com/x" }, addresses: ["192.0.2.0"] },
      { name: "outside", addresses: ["198.51.100.1"] },
      { name: "plain", spec: { loadBalancerClass: OWN_CLASS } },
      { name: "second", spec: { loadBalancerClass: "metallb.io/metallb" } },
    ),
    [
      "default/other: nothing",
      "default/outside: (left alone) (The status has 198.51.100.1, which is in no pool: another " +
      "controller wrote it, or its range was removed from the pools; it is left alone. Stop that " +
      "controller or add the range again, or remove the entry from the status to get another " +
      "address)",
      "default/plain: 192.0.2.1",
      "default/second: 192.0.2.2",
    ],
  );
  const named = loadBalancer({ name: "named" });
  const status = { loadBalancer: { ingress: [{ hostname: "lb.example.com" }] } };
  assert(stage.give({ ...named, status })[0]!.startsWith("default/named: (left alone)"));
});

Deno.test("AddressAllocator takes pools by priority, then by name, and the next one if one is full", () => {
  const team = selector({ "kubernetes.io/metadata.name": "red" });
  const stage = new Stage(
    pool("z-last", ["10.0.0.1"]),
    pool("b", ["10.0.1.1"], { priority: 20 }),
    pool("own", ["10.0.2.1"], { priority: 5, namespaceSelector: team }),
    pool("a", ["10.0.3.1"], { priority: 20 }),
    pool("asked", ["10.0.4.1"], { priority: 1, autoAssign: false }),
    pool("y-last", ["10.0.5.1"]),
  );
  const annotations = { "kube-relay.io/load-balancer-pool": "z-last" };
  assertEquals(
    stage.give(
      { name: "red/1", annotations },
      ...[2, 3, 4, 5].map((number) => ({ name: `red/${number}` })),
      { name: "red/6" },
    ),
    [
      "red/1: 10.0.0.1",
      "red/2: 10.0.2.1",
      "red/3: 10.0.3.1",
      "red/4: 10.0.1.1",
      "red/5: 10.0.5.1",
      "red/6: (The pools 'own', 'a', 'b', 'y-last', 'z-last' have no free address of IPv4)",
    ],
  );
  // The one that waits gets what becomes free; the others keep what they have, even of a pool that comes later.
  stage.allocator.setService("red/2" as ServiceKey, undefined);
  assertEquals(stage.give({ name: "red/6" }, { name: "red/5", addresses: ["10.0.5.1"] }), [
    "red/6: 10.0.2.1",
    "red/5: 10.0.5.1",
  ]);
});

Deno.test("AddressAllocator lets Services share a port of TCP if at most one is without server names", () => {
  const stage = new Stage(pool("a", ["10.0.0.0/24"]));
  const ask = (name: string, sni?: string) => ({
    ...{ name, spec: { loadBalancerIP: "10.0.0.7" } },
    annotations: { [KEY]: "k", ...(sni !== undefined && { "kube-relay.io/sni": sni }) },
  });
  assertEquals(
    stage.give(
      ...[ask("red/1", "a.example.com"), ask("red/2", "b.example.com"), ask("red/3")],
      ...[ask("red/4"), ask("red/5", "not a name")],
    ),
    [
      ...["red/1: 10.0.0.7", "red/2: 10.0.0.7", "red/3: 10.0.0.7"],
      "red/4: (10.0.0.7 is taken by red/3, which has port TCP/80 too)",
      "red/5: 10.0.0.7",
    ],
  );
});

const REFUSED: readonly [name: string, parts: Partial<LoadBalancerParts>, message: string][] = [
  ["outside of pools", { annotations: { [IPS]: "198.51.100.1" } }, "198.51.100.1 is in no pool"],
  [
    "of another tenant",
    { name: "blue/a", spec: { loadBalancerIP: "192.0.2.1" }, annotations: { [KEY]: "k" } },
    "192.0.2.1 is taken by a Service of another namespace",
  ],
  [
    "of a Service that does not share",
    { spec: { loadBalancerIP: "192.0.2.1" } },
    "192.0.2.1 is taken by red/holder, and the two Services have no sharing key in common",
  ],
  [
    "with the same port",
    { spec: { loadBalancerIP: "192.0.2.1" }, annotations: { [KEY]: "k" } },
    "192.0.2.1 is taken by red/holder, which has port TCP/80 too",
  ],
  [
    "with another policy",
    {
      spec: { loadBalancerIP: "192.0.2.1", externalTrafficPolicy: "Local", ports: [] },
      annotations: { [KEY]: "k" },
    },
    "192.0.2.1 is taken by red/holder: to share it, both Services need externalTrafficPolicy " +
    "Cluster, or Local with the same selector",
  ],
  [
    "with another policy by kube-router's annotation",
    {
      spec: { loadBalancerIP: "192.0.2.1", ports: [] },
      annotations: { [KEY]: "k", "kube-router.io/service.local": "true" },
    },
    "192.0.2.1 is taken by red/holder: to share it, both Services need externalTrafficPolicy " +
    "Cluster, or Local with the same selector",
  ],
  [
    "of a node",
    { spec: { loadBalancerIP: "192.0.2.2" } },
    "192.0.2.2 is in use by node node-1",
  ],
  [
    "of a pool for others",
    { spec: { loadBalancerIP: "203.0.113.1" } },
    "203.0.113.1 is in pool 'blue', which this Service may not use",
  ],
  [
    "of another family",
    { spec: { loadBalancerIP: "2001:db8::1" } },
    "spec.loadBalancerIP: the Service has no IPv6, so it cannot have 2001:db8::1; spec.ipFamilies " +
    "is IPv4",
  ],
  [
    "that is none",
    { annotations: { [IPS]: "web" } },
    "kube-relay.io/load-balancer-ips: expected an IP address, found 'web'",
  ],
  [
    "twice",
    { annotations: { [IPS]: "192.0.2.3,192.0.2.4" } },
    "kube-relay.io/load-balancer-ips: expected one address of IPv4, found 192.0.2.3 and 192.0.2.4",
  ],
  [
    "in an unknown pool",
    { annotations: { "kube-relay.io/load-balancer-pool": "green" } },
    "The Service may not use pool 'green', or the pool has no IPv4",
  ],
  [
    "in an unknown pool with a long name",
    // A tenant may write 256 KiB, which would be in each status and event.
    { annotations: { "kube-relay.io/load-balancer-pool": "x".repeat(200_000) } },
    `The Service may not use pool '${"x".repeat(60)}…', or the pool has no IPv4`,
  ],
  ["without a family", { spec: { ipFamilies: ["IPv6"] } }, "No pool has addresses of IPv6"],
];

for (const [name, parts, message] of REFUSED) {
  Deno.test(`AddressAllocator refuses an address ${name}`, () => {
    const stage = new Stage(
      pool("a", ["192.0.2.0/24"]),
      pool("blue", ["203.0.113.0/24"], {
        namespaceSelector: selector({ "kubernetes.io/metadata.name": "blue" }),
      }),
    );
    stage.allocator.setNode("node-1", [parseIpAddress("192.0.2.2")]);
    stage.give({
      name: "red/holder",
      spec: { loadBalancerIP: "192.0.2.1" },
      annotations: { [KEY]: "k" },
    });
    const [text] = stage.give({ name: "red/a", ...parts });
    assertEquals(text, `${parts.name ?? "red/a"}: (${message})`);
  });
}

Deno.test("AddressAllocator looks at one Service for the change of one among ten thousand", () => {
  let reads = 0;
  const { allocator } = new Stage(pool("a", ["10.0.0.0/8"], { serviceSelector: selector({}) }));
  for (let number = 0; number < 10_000; number++) {
    const request = addressRequestOf(loadBalancer({ name: `s${number}` }), CLASSES)!;
    const counted = Object.defineProperty({ ...request }, "labels", { get: () => (reads++, {}) });
    allocator.setService(request.key, counted);
  }
  assertEquals(allocator.update().size, 10_000);
  reads = 0;
  const changed = addressRequestOf(loadBalancer({ name: "s5000", labels: { a: "b" } }), CLASSES)!;
  allocator.setService(changed.key, changed);
  assertEquals([...allocator.update()], [changed.key]);
  allocator.setService("default/s1" as ServiceKey, undefined);
  assertEquals(allocator.update().size, 1);
  assert(reads < 3, `read ${reads} other Services`);
});

Deno.test("AddressAllocator wakes no waiting Service for a change that frees nothing", () => {
  const { allocator } = new Stage(pool("a", ["192.0.2.1/32"]));
  const set = (name: string, labels: Readonly<Record<string, string>>) => {
    const service = loadBalancer({ name, labels, spec: { loadBalancerIP: "192.0.2.1" } });
    const request = addressRequestOf(service, CLASSES)!;
    allocator.setService(request.key, request);
  };
  for (let number = 0; number < 100; number++) set(`s${number}`, {});
  allocator.update();
  set("s0", { changed: "yes" });
  let steps = 0;
  for (const _ of allocator.updateInSteps()) steps++;
  assert(steps < 10, `took ${steps} steps`);
});
