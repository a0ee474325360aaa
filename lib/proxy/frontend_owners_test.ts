import { assertEquals } from "@std/assert";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { ownedAddresses, type ServicePlan } from "./service_plan.ts";
import { contestedItems, FrontendOwners } from "./frontend_owners.ts";
import { tryParseServerNameClaim } from "../net/server_name.ts";
import { deepEqual } from "./deep_equal.ts";
import { type ServicePortKey, servicePortKey } from "./service_port_name.ts";

const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"];
const ADDRESS = "203.0.113.1";
const NODE = parseIpAddress("192.168.0.2");

/**
 * Returns the frontends that each Service lacks after each update, and the ServicePorts that each
 * update affects.
 */
function updates(...steps: readonly (readonly TestServicePlan[])[]) {
  const owners = new FrontendOwners();
  owners.setNodeAddresses({ interfaceAddresses: [NODE], nodePortAddresses: [NODE] });
  let plans = new Map<ServicePortKey, ServicePlan>();
  return steps.map((services) => {
    const claimants = new Map(
      services.map((options) => testServicePlan(options)).map((plan) => [plan.key, plan]),
    );
    for (const key of new Set([...plans.keys(), ...claimants.keys()])) {
      owners.update(key, claimants.get(key));
    }
    const affected = [...owners.decide()].sort();
    plans = new Map([...claimants].map(([key, plan]) => {
      const { nodePort: _, ...rest } = plan;
      return [key, {
        ...rest,
        ...ownedAddresses(plan, owners.contestedOf(plan)),
      }];
    }));
    const lost = [...plans.values()].flatMap(({ name, contested = [] }) =>
      contested.map(({ role, address = "*", port, owner, why }) =>
        `${name.name}: ${role} ${address}:${port} is of ${owner} by ${why}`
      )
    );
    return { affected, lost: lost.sort() };
  });
}

function lost(...steps: readonly (readonly TestServicePlan[])[]): readonly (readonly string[])[] {
  return updates(...steps).map((step) => step.lost);
}

Deno.test("FrontendOwners gives an address to the oldest Service, then to the first by name", () => {
  const at = (name: string, createdAt: string) => ({
    ...{ name, createdAt, clusterIp: `10.96.0.${name.charCodeAt(0)}` },
    loadBalancerVips: [ADDRESS],
  });
  const [a, b, c] = [at("a", NEW), at("b", NEW), at("c", OLD)];
  const isOf = (name: string, owner: string) =>
    `${name}: LoadBalancer ${ADDRESS}:80 is of ns/${owner}/TCP`;
  assertEquals(lost([b, a], [b, a, c], [a, b], [b], []), [
    [`${isOf("b", "a")} by name`],
    [`${isOf("a", "c")} by age`, `${isOf("b", "c")} by age`],
    [`${isOf("b", "a")} by name`],
    [],
    [],
  ]);
});

Deno.test("FrontendOwners gives a cluster IP to its Service, whichever comes first", () => {
  const owner = { name: "owner", clusterIp: ADDRESS, createdAt: NEW };
  const guest = { name: "guest", clusterIp: "10.96.0.9", externalIps: [ADDRESS], createdAt: OLD };
  const taken = [`guest: ExternalIP ${ADDRESS}:80 is of ns/owner/TCP by cluster IP`];
  assertEquals(
    lost([owner, guest], [guest], [guest, owner], [owner], [owner, guest]),
    [taken, [], taken, [], taken],
  );
  assertEquals(lost([owner, guest], [{ ...owner, clusterIp: "10.96.0.3" }, guest]), [taken, []]);
});

Deno.test("FrontendOwners gives a node port of two Services to one, and to none if an address has it", () => {
  const a = { name: "a", clusterIp: "10.96.0.1", nodePort: 30_080 };
  const b = { name: "b", clusterIp: "10.96.0.2", nodePort: 30_080 };
  const c = { name: "c", clusterIp: "10.96.0.3", externalIps: [NODE], port: 30_080 };
  const [whole, single] = ["*", NODE].map((address) => `NodePort ${address}:30080 is of`);
  assertEquals(lost([b, a], [b], [b, c], [b]), [
    [`b: ${whole} ns/a/TCP by name`],
    [],
    [`b: ${single} ns/c/TCP by address`],
    [],
  ]);
});

Deno.test("contestedItems() names the frontend and its owner", () => {
  const plan = testServicePlan({
    contested: [{
      role: "ExternalIP",
      address: parseIpAddress("2001:db8::1"),
      port: testServicePlan().port,
      owner: testServicePlan({ name: "b" }).key,
      why: "age",
    }],
  });
  const [item] = contestedItems(plan);
  assertEquals(item?.address, "[2001:db8::1]:80/TCP");
  const reason = "belongs to ns/b/TCP: the Service that was there first keeps it";
  assertEquals(item?.reason, `[2001:db8::1]:80/TCP ${reason}`);
});

Deno.test("contestedItems() names a node port on every address, because the rest of the ServicePort works", () => {
  const { port } = testServicePlan({ port: 30_080 });
  const plan = testServicePlan({
    contested: [{ role: "NodePort", port, owner: testServicePlan({ name: "b" }).key, why: "name" }],
  });
  assertEquals(contestedItems(plan).map(({ address }) => address), [":30080/TCP"]);
});

/** A Service of a namespace that claims one address, for some server names or whole. */
interface Sharer {
  readonly at: string;
  readonly sni?: string;
  readonly createdAt?: string;
  readonly clusterIp?: string;
}

/** Follows Services that share an address by server names. Returns what each update gives to each of them. */
class Sharing {
  readonly owners = new FrontendOwners();
  readonly #claimants = new Map<ServicePortKey, ServicePlan>();
  readonly #given = new Map<ServicePortKey, string>();
  readonly #indexes = new Map<string, number>();
  affected: readonly string[] = [];

  constructor(sharesByServerName = true) {
    this.owners.setSettings([], { sharesByServerName });
  }

  update(sharers: readonly Sharer[]): Readonly<Record<string, string>> {
    const next = new Map(sharers.map(({ at, sni, createdAt = OLD, clusterIp }) => {
      const index = this.#indexes.getOrInsertComputed(at, () => this.#indexes.size);
      const [namespace = "", service = ""] = at.split("/");
      const name = { namespace, name: service, port: "", protocol: "TCP" } as const;
      const key = servicePortKey(name);
      const claims = sni?.split(",").map((each) => tryParseServerNameClaim(each)!);
      const plan = testServicePlan({
        ...{ createdAt, clusterIp: clusterIp ?? `10.96.0.${index + 1}`, externalIps: [ADDRESS] },
        ...(claims && { edge: { sni: claims } }),
      });
      return [key, { ...plan, name, key }];
    }));
    const changed = new Set<ServicePortKey>();
    for (const key of new Set([...this.#claimants.keys(), ...next.keys()])) {
      const [before, now] = [this.#claimants.get(key), next.get(key)];
      if (deepEqual(before, now)) continue;
      this.owners.update(key, now);
      changed.add(key);
      if (now) this.#claimants.set(key, now);
      else this.#claimants.delete(key);
    }
    const affected = this.owners.decide();
    this.affected = [...affected].map(nameOf).sort();
    // As a plan does, which looks at no others.
    for (const key of changed.union(affected)) {
      const plan = this.#claimants.get(key);
      if (plan) this.#given.set(key, this.#of(plan));
      else this.#given.delete(key);
    }
    return Object.fromEntries([...this.#given].map(([key, given]) => [nameOf(key), given]));
  }

  reasons(): readonly string[] {
    return this.#claimants.values().flatMap((plan) => {
      const [contested, shared] = [this.owners.contestedOf(plan), this.owners.sharedOf(plan)];
      const decided = { ...plan, ...(contested && { contested }), ...(shared && { shared }) };
      return contestedItems(decided).map(({ reason }) => reason);
    }).toArray();
  }

  #of(plan: ServicePlan): string {
    const contest = this.owners.contestedOf(plan)?.find(({ role }) => role === "ExternalIP");
    if (contest) return `none: ${contest.why} of ${nameOf(contest.owner as string)}`;
    const [shared] = this.owners.sharedOf(plan) ?? [];
    return shared ? shared.names.join(",") : "all";
  }
}

function nameOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/"));
}

const [A, B] = ["a.example.com", "b.example.com"];
const WILD = "*.example.com";
const SHARINGS: readonly (readonly [
  what: string,
  sharers: readonly Sharer[],
  given: Readonly<Record<string, string>>,
])[] = [
  ["one name each, and the rest to the one without", [
    { at: "x/one", sni: A },
    { at: "y/two", sni: `${B},${B}` },
    { at: "z/rest" },
  ], { "x/one": A, "y/two": B, "z/rest": "*" }],
  ["only the names of the only one", [{ at: "x/one", sni: A }], { "x/one": A }],
  ["all to the only one without names", [{ at: "x/one" }], { "x/one": "all" }],
  ["a name to the oldest", [
    { at: "x/one", sni: A, createdAt: NEW },
    { at: "y/two", sni: `${A},${B}` },
    { at: "z/three", sni: `${B},c.example.com` },
  ], { "x/one": "none: age of y/two", "y/two": `${A},${B}`, "z/three": "c.example.com" }],
  ["a name by namespace and name, if none is older", [
    { at: "y/two", sni: A },
    { at: "x/one", sni: A },
  ], { "x/one": A, "y/two": "none: name of x/one" }],
  ["a single name next to a wildcard of another namespace, whichever is older", [
    { at: "x/wild", sni: WILD },
    { at: "y/new", sni: A, createdAt: NEW },
    { at: "z/late", sni: WILD, createdAt: NEW },
  ], { "x/wild": WILD, "y/new": A, "z/late": "none: age of x/wild" }],
  ["the rest to the oldest one without names", [
    { at: "x/one", sni: A },
    { at: "y/rest", createdAt: NEW },
    { at: "z/rest" },
  ], { "x/one": A, "y/rest": "none: age of z/rest", "z/rest": "*" }],
  ["nothing of an older Service without names to another namespace", [
    { at: "x/all" },
    { at: "y/thief", sni: A },
  ], { "x/all": "all", "y/thief": "none: unshared of x/all" }],
  ["no name to one that gets no connection anyway", [
    { at: "x/all" },
    { at: "y/thief", sni: A },
    { at: "x/own", sni: A, createdAt: NEW },
  ], { "x/all": "*", "y/thief": "none: unshared of x/all", "x/own": A }],
  ["no name to one that gets no connection because of the older of two others", [
    { at: "z/rest", createdAt: NEW },
    { at: "x/all" },
    { at: "y/thief", sni: A, createdAt: "2026-01-15T00:00:00Z" },
    { at: "x/own", sni: A, createdAt: NEW },
  ], {
    ...{ "z/rest": "none: age of x/all", "x/all": "*" },
    ...{ "y/thief": "none: unshared of x/all", "x/own": A },
  }],
  ["the rest to one without names, and its names to a younger one of its namespace", [
    { at: "x/rest" },
    { at: "x/star", sni: `*`, createdAt: NEW },
  ], { "x/rest": "*", "x/star": "none: age of x/rest" }],
  ["names to all namespaces, if the older one takes the rest by name", [
    { at: "x/rest", sni: "*" },
    { at: "y/one", sni: A, createdAt: NEW },
    { at: "z/rest", createdAt: NEW },
  ], { "x/rest": "*", "y/one": A, "z/rest": "none: age of x/rest" }],
  ["all of its own cluster IP to a Service", [
    { at: "x/own", sni: A, clusterIp: ADDRESS },
  ], { "x/own": "all" }],
  ["nothing of a cluster IP", [
    { at: "x/owner", sni: B, clusterIp: ADDRESS, createdAt: NEW },
    { at: "x/guest", sni: A },
  ], { "x/owner": "all", "x/guest": "none: cluster IP of x/owner" }],
];
for (const [what, sharers, given] of SHARINGS) {
  Deno.test(`FrontendOwners gives ${what}`, () => {
    assertEquals(new Sharing().update(sharers), given);
    // In any order, and step by step, each Service and others come and go.
    const stage = new Sharing();
    const [whole, named] = [{ at: "a/a" }, { at: "a/b", sni: `${A},${B},${WILD}` }];
    const steps = [
      ...sharers.map((_, index) => sharers.slice(-1 - index)),
      ...[[...sharers, whole], [...sharers, whole, named], [...sharers, named], sharers],
      ...sharers.map((_, index) => sharers.slice(1 + index)),
    ];
    for (const step of steps) assertEquals(stage.update(step), new Sharing().update(step));
  });
}

Deno.test("FrontendOwners gives no node port at an address that is shared by names", () => {
  const owners = new FrontendOwners();
  owners.setSettings([], { sharesByServerName: true });
  owners.setNodeAddresses({ interfaceAddresses: [NODE], nodePortAddresses: [NODE] });
  const other = testServicePlan({ name: "other", clusterIp: "10.96.0.2", nodePort: 30_443 });
  const edge = { sni: [tryParseServerNameClaim(A)!] };
  const named = testServicePlan({ port: 30_443, externalIps: [NODE], edge });
  owners.update(other.key, other);
  assertEquals([[...owners.decide()], owners.contestedOf(other)], [[], undefined]);
  owners.update(named.key, named);
  assertEquals([...owners.decide()], [other.key]);
  assertEquals(owners.contestedOf(other)?.map(({ owner, why }) => [owner, why]), [
    [named.key, "address"],
  ]);
});

Deno.test("FrontendOwners shares nothing where the mode reads no names", () => {
  for (const sni of [{ sni: A }, {}]) {
    assertEquals(new Sharing(false).update([{ at: "x/one", ...sni }, { at: "y/two", sni: B }]), {
      "x/one": "all",
      "y/two": "none: name of x/one",
    });
  }
});

Deno.test("FrontendOwners looks only at the Services whose part changes", () => {
  const many = Array.from({ length: 100 }, (_, index) => ({
    ...{ at: `ns/s${index}`, sni: `s${index}.example.com` },
  }));
  const stage = new Sharing();
  stage.update([...many, { at: "ns/rest" }]);
  const changed = [{ ...many[0]!, sni: "s1.example.com,new.example.com" }, ...many.slice(1)];
  stage.update([...changed, { at: "ns/rest" }]);
  assertEquals(stage.affected, ["ns/rest", "ns/s0", "ns/s1"]);
  assertEquals(stage.reasons(), [
    "The connections for s1.example.com at 203.0.113.1:80/TCP belong to ns/s0/TCP: " +
    "neither Service is known to be older, so the first by name has it",
  ]);
});
