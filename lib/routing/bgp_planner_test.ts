import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type NodeParts, pool, routedNode } from "../../tests/support/builders/routed_objects.ts";
import type { AnnouncedService, ServiceAddressKind } from "./announced_service.ts";
import type { BgpPlan } from "./bgp_plan.ts";
import { BgpPlanner, type BgpPlannerOptions } from "./bgp_planner.ts";
import { SESSION_DEFAULTS } from "./node_bgp.ts";
import { routingNodeOf } from "./routing_node.ts";
import type { BgpSettings, ConfiguredPeer } from "./routing_settings.ts";

const PEER: ConfiguredPeer = {
  name: "tor",
  address: parseIpAddress("192.0.2.254"),
  port: parsePort(179),
  as: 64600,
  ...SESSION_DEFAULTS,
};

const SETTINGS: BgpSettings = {
  mesh: false,
  nodeAnnotations: true,
  peers: [PEER],
  advertise: {
    loadBalancerIps: true,
    externalIps: false,
    clusterIps: false,
    podCidrs: false,
    serviceRanges: false,
  },
  externalIpRanges: [],
  communities: [],
  largeCommunities: [],
  imports: { external: [], defaultRoute: false, table: 254, metric: 512, limitPerPeer: 1000 },
  controlSocket: "/run/bird.ctl",
  configFile: "/run/bird.conf",
};

const POOLS = [
  pool("bgp", ["198.51.100.0/24"], { announce: "bgp" }),
  pool("l2", ["203.0.113.0/24"]),
];
const WEB = "default/web" as ServiceKey;
const API = "default/api" as ServiceKey;

interface StageParts {
  readonly settings?: Partial<BgpSettings>;
  readonly clusterCidrs?: BgpPlannerOptions["clusterCidrs"];
  /** The own node. */
  readonly own?: Partial<NodeParts>;
}

function stage({ settings = {}, clusterCidrs = [], own = {} }: StageParts = {}): BgpPlanner {
  const planner = new BgpPlanner({
    settings: { ...SETTINGS, ...settings },
    pools: POOLS,
    nodeName: "own",
    clusterCidrs,
  });
  setNode(planner, { name: "own", addresses: ["192.0.2.1"], podCidrs: ["10.1.0.0/24"], ...own });
  return planner;
}

function setNode(planner: BgpPlanner, parts: NodeParts): void {
  planner.setNode(parts.name, routingNodeOf(routedNode(parts)));
}

function service(
  addresses: Readonly<Record<string, ServiceAddressKind>>,
  { obstacle, switches = {} }: {
    readonly obstacle?: string;
    readonly switches?: AnnouncedService["switches"];
  } = {},
): AnnouncedService {
  return {
    addresses: Object.entries(addresses).map(([address, kind]) => ({
      address: parseIpAddress(address),
      kind,
      ...(obstacle !== undefined && { obstacle }),
    })),
    switches,
  };
}

/** The plan after an update. */
function updated(planner: BgpPlanner): BgpPlan {
  planner.update();
  return planner.plan!;
}

/** Announced prefixes as text. */
function announced(planner: BgpPlanner): readonly string[] {
  planner.update();
  return planner.plan!.announced.map(({ prefix, kind, to }) => `${prefix} ${kind} ${to.join(",")}`);
}

/** Sessions as text. */
function peers(planner: BgpPlanner): readonly string[] {
  planner.update();
  return planner.plan!.peers.map(({ name, address, as, role, reflectorClusterId }) =>
    [name, address, as, role, ...reflectorClusterId ? [reflectorClusterId] : []].join(" ")
  );
}

/** Why an address is not announced. */
function obstacle(planner: BgpPlanner, address: string): string | undefined {
  planner.update();
  return planner.sourcesOf(parseCidr(`${address}/32`))[0]?.obstacle;
}

Deno.test("BgpPlanner has no plan until the own Node is known", () => {
  const planner = new BgpPlanner({
    settings: SETTINGS,
    pools: POOLS,
    nodeName: "own",
    clusterCidrs: [],
  });
  setNode(planner, { name: "other" });
  planner.update();
  assertEquals(planner.plan, undefined);
  setNode(planner, { name: "own" });
  const plan = updated(planner);
  // Without an IPv4 address.
  assert(/^\d+\.\d+\.\d+\.\d+$/.test(plan.routerId) && plan.routerId !== "0.0.0.0");
  assertEquals(plan.localAs, 64512);
});

Deno.test("BgpPlanner announces load balancer addresses of pools with bgp, and explains what it withholds", () => {
  const planner = stage();
  planner.setService(
    WEB,
    service({
      "198.51.100.1": "loadBalancerIps",
      "203.0.113.1": "loadBalancerIps",
      "192.0.2.77": "loadBalancerIps",
      "192.0.2.1": "loadBalancerIps",
      "10.96.0.1": "clusterIps",
      "192.0.2.9": "externalIps",
    }),
  );
  assertEquals(announced(planner), [
    "192.0.2.77/32 load-balancer external",
    "198.51.100.1/32 load-balancer external",
  ]);
  assertEquals(obstacle(planner, "203.0.113.1"), "pool 'l2' is announced by layer2");
  assertEquals(obstacle(planner, "192.0.2.1"), "it is the address of node own");
  assertEquals(obstacle(planner, "10.96.0.1"), "routing.bgp.advertise.clusterIps is off");
  assertEquals(obstacle(planner, "192.0.2.9"), "routing.bgp.advertise.externalIps is off");
});

Deno.test("BgpPlanner announces external IPs in the configured ranges only", () => {
  const planner = stage({
    settings: {
      advertise: { ...SETTINGS.advertise, externalIps: true },
      externalIpRanges: [parseCidr("192.0.2.0/28")],
    },
  });
  planner.setService(WEB, service({ "192.0.2.9": "externalIps", "192.0.2.99": "externalIps" }));
  assertEquals(announced(planner), ["192.0.2.9/32 external-ip external"]);
  assertEquals(obstacle(planner, "192.0.2.99"), "it is outside of routing.bgp.externalIpRanges");
});

Deno.test("BgpPlanner announces no address of a pool as an external IP, which any tenant can write", () => {
  const planner = stage({
    settings: {
      advertise: { ...SETTINGS.advertise, externalIps: true },
      externalIpRanges: [parseCidr("198.51.100.0/24")],
    },
  });
  planner.setService(WEB, service({ "198.51.100.1": "externalIps" }));
  assertEquals(announced(planner), []);
  assertEquals(
    obstacle(planner, "198.51.100.1"),
    "it is in pool 'bgp', whose addresses are announced only for Services that they are assigned to",
  );
});

Deno.test("BgpPlanner announces no load balancer address that is something else, whatever wrote the status", () => {
  const own = { name: "own", addresses: ["192.0.2.1"], podCidrs: ["10.1.0.0/24"] };
  const planner = stage({ own });
  const addresses = ["127.0.0.1", "224.0.0.1", "169.254.1.1", "10.1.0.9", "10.96.0.1"];
  const web = service(
    Object.fromEntries(addresses.map((each) => [each, "loadBalancerIps" as const])),
  );
  planner.setService(WEB, web);
  assertEquals(announced(planner), ["10.96.0.1/32 load-balancer external"]);
  planner.setServiceRanges([parseCidr("10.96.0.0/16")]);
  planner.setService(WEB, web);
  assertEquals(announced(planner), []);
  assertEquals(addresses.map((each) => obstacle(planner, each)), [
    ...Array(3).fill("no network has such an address"),
    "it is in 10.1.0.0/24, a range of pods",
    "it is in 10.96.0.0/16, a range of cluster IPs",
  ]);
  setNode(planner, { ...own, podCidrs: ["10.2.0.0/24"] });
  assertEquals(announced(planner), ["10.1.0.9/32 load-balancer external"]);
});

Deno.test("BgpPlanner follows the switches of a Service", () => {
  const planner = stage();
  const addresses = { "198.51.100.1": "loadBalancerIps", "10.96.0.1": "clusterIps" } as const;
  planner.setService(
    WEB,
    service(addresses, { switches: { loadBalancerIps: false, clusterIps: true } }),
  );
  assertEquals(announced(planner), ["10.96.0.1/32 cluster-ip external"]);
  assertEquals(obstacle(planner, "198.51.100.1"), "an annotation of the Service turns it off");
});

Deno.test("BgpPlanner withdraws an address when no Service wants it any more", () => {
  const planner = stage();
  const one = { "198.51.100.1": "loadBalancerIps" } as const;
  planner.setService(WEB, service(one));
  planner.setService(API, service(one));
  assertEquals(announced(planner).length, 1);
  planner.setService(WEB, service(one, { obstacle: "no endpoint" }));
  assertEquals(announced(planner).length, 1);
  planner.setService(API, undefined);
  assertEquals(announced(planner), []);
  assertEquals(obstacle(planner, "198.51.100.1"), "no endpoint");
});

Deno.test("BgpPlanner withdraws what another node is ready for, and everything without a network", () => {
  const nodeSelector = {
    text: "rack",
    isInvalid: false,
    requirements: [{ key: "rack", operator: "In" as const, values: new Set(["a"]) }],
  };
  const pools = [
    pool("bgp", ["198.51.100.0/25"], { announce: "bgp" }),
    pool("rack", ["198.51.100.128/25"], { announce: "bgp", nodeSelector }),
  ];
  const own = { name: "own", addresses: ["192.0.2.1"], labels: { rack: "a" } };
  const planner = new BgpPlanner({ settings: SETTINGS, pools, nodeName: "own", clusterCidrs: [] });
  setNode(planner, own);
  const every = service({
    "198.51.100.1": "loadBalancerIps",
    "198.51.100.128": "loadBalancerIps",
  });
  planner.setService(WEB, every);
  const [local] = service({ "198.51.100.2": "loadBalancerIps" }).addresses;
  const endpointNodes = new Set(["own"]);
  planner.setService(API, { addresses: [{ ...local!, endpointNodes }], switches: {} });
  const [first, rack, ofLocal] = [1, 128, 2].map((last) =>
    `198.51.100.${last}/32 load-balancer external`
  ) as [string, string, string];
  const all = [first, rack, ofLocal];
  assertEquals(announced(planner), all);
  setNode(planner, { ...own, conditions: { Ready: "False" } });
  assertEquals(announced(planner), all, "there is no other node");
  setNode(planner, { name: "other", conditions: { Ready: "Unknown" } });
  assertEquals(announced(planner), all, "the other one is not ready either");
  setNode(planner, { name: "other", labels: { rack: "b" }, conditions: { Ready: "True" } });
  assertEquals(announced(planner), [rack, ofLocal], "only own endpoints, only the own rack");
  assertEquals(obstacle(planner, "198.51.100.1"), "the Node is not ready, and other is");
  setNode(planner, { name: "other", labels: { rack: "a" }, conditions: { Ready: "True" } });
  assertEquals(announced(planner), [ofLocal]);
  setNode(planner, { ...own, conditions: { Ready: "True" } });
  assertEquals(announced(planner), all);
  setNode(planner, { ...own, conditions: { Ready: "True", NetworkUnavailable: "True" } });
  assertEquals(announced(planner), []);
  assertEquals(
    obstacle(planner, "198.51.100.1"),
    "the Node has the condition NetworkUnavailable",
  );
});

Deno.test("BgpPlanner withdraws the addresses of Services while the node is excluded or drains", () => {
  const label = "node.kubernetes.io/exclude-from-external-load-balancers";
  const own = { name: "own", addresses: ["192.0.2.1"], podCidrs: ["10.1.0.0/24"] };
  const planner = stage({
    settings: {
      mesh: true,
      advertise: { ...SETTINGS.advertise, podCidrs: true, serviceRanges: true },
    },
  });
  planner.setServiceRanges([parseCidr("10.96.0.0/16")]);
  planner.setService(WEB, service({ "198.51.100.1": "loadBalancerIps" }));
  const pods = "10.1.0.0/24 pod-cidr external,mesh,reflector-client";
  const all = [
    pods,
    "10.96.0.0/16 service-range external",
    "198.51.100.1/32 load-balancer external",
  ];
  assertEquals(announced(planner), all);
  setNode(planner, { ...own, labels: { [label]: "" } });
  assertEquals(announced(planner), [pods]);
  assertEquals(obstacle(planner, "198.51.100.1"), `the Node has the label ${label}`);
  setNode(planner, own);
  assertEquals(announced(planner), all);
  planner.setDraining(true);
  assertEquals(announced(planner), [pods]);
  assertEquals(obstacle(planner, "198.51.100.1"), "the node drains");
  planner.setDraining(false);
  planner.setNode("own", undefined);
  assertEquals(announced(planner), [pods]);
  assertEquals(obstacle(planner, "198.51.100.1"), "the Node does not exist");
  setNode(planner, own);
  assertEquals(announced(planner), all);
});

Deno.test("BgpPlanner has sessions with the nodes of its AS, in each family that both have", () => {
  const planner = stage({ settings: { mesh: true }, own: { addresses: ["192.0.2.1", "fd00::1"] } });
  setNode(planner, { name: "b", addresses: ["192.0.2.2", "fd00::2"] });
  setNode(planner, { name: "c.example", addresses: ["192.0.2.3"] });
  setNode(planner, {
    name: "d",
    addresses: ["192.0.2.4"],
    annotations: { "kube-router.io/node.asn": "64999" },
  });
  const [b4, b6, c, tor] = peers(planner);
  assertEquals([b4, b6, tor], [
    "node_b_v4 192.0.2.2 64512 mesh",
    "node_b_v6 fd00::2 64512 mesh",
    "tor 192.0.2.254 64600 external",
  ]);
  assert(/^node_c_example_[a-z2-7]{8}_v4 192.0.2.3 64512 mesh$/.test(c!), c);
  assertEquals(planner.plan!.peers[1]!.localAddress as string, "fd00::1");
});

Deno.test("BgpPlanner allows more hops to nodes outside of the node's networks", () => {
  const planner = stage({ settings: { mesh: true } });
  setNode(planner, { name: "b", addresses: ["192.0.2.2"] });
  setNode(planner, { name: "c", addresses: ["198.18.0.2"] });
  const hops = () => updated(planner).peers.map(({ multihopTtl }) => multihopTtl);
  assertEquals(hops(), [undefined, undefined, undefined]);
  planner.setNetworks([parseCidr("192.0.2.0/24")]);
  assertEquals(hops(), [undefined, 64, undefined]);
});

Deno.test("BgpPlanner lets a reflector send the pod ranges of all nodes", () => {
  const planner = stage({ settings: { mesh: true } });
  const limit = () => updated(planner).imports.limitPerPeer;
  assertEquals(limit(), 1000);
  for (let number = 0; number < 600; number++) {
    const podCidrs = [`10.${2 + (number >> 8)}.${number & 255}.0/24`];
    setNode(planner, { name: `n${number}`, podCidrs });
  }
  assertEquals(limit(), 2048);
});

Deno.test("BgpPlanner connects clients with the reflectors of their cluster only", () => {
  const rr = (kind: "server" | "client", id: string) => ({ [`kube-router.io/rr.${kind}`]: id });
  const nodes: readonly NodeParts[] = [
    { name: "s1", addresses: ["192.0.2.11"], annotations: rr("server", "42") },
    { name: "s2", addresses: ["192.0.2.12"], annotations: rr("server", "43") },
    { name: "c1", addresses: ["192.0.2.13"], annotations: rr("client", "42") },
    { name: "c2", addresses: ["192.0.2.14"], annotations: rr("client", "43") },
  ];
  const sessions = new Map(nodes.map(({ name: own }) => {
    const planner = new BgpPlanner({
      settings: { ...SETTINGS, peers: [], mesh: true },
      pools: [],
      nodeName: own,
      clusterCidrs: [],
    });
    for (const node of nodes) setNode(planner, node);
    return [own, peers(planner)];
  }));
  assertEquals(Object.fromEntries(sessions), {
    s1: [
      "node_c1_v4 192.0.2.13 64512 reflector-client 0.0.0.42",
      "node_s2_v4 192.0.2.12 64512 mesh",
    ],
    s2: [
      "node_c2_v4 192.0.2.14 64512 reflector-client 0.0.0.43",
      "node_s1_v4 192.0.2.11 64512 mesh",
    ],
    c1: ["node_s1_v4 192.0.2.11 64512 mesh"],
    c2: ["node_s2_v4 192.0.2.12 64512 mesh"],
  });
});

Deno.test("BgpPlanner adds the peers of the own Node, unless the configuration has them", () => {
  const planner = stage({
    own: {
      annotations: {
        "kube-router.io/peer.ips": "192.0.2.254,192.0.2.253",
        "kube-router.io/peer.asns": "1,64700",
        "kube-router.io/node.bgp.communities": "64512:7",
      },
    },
  });
  setNode(planner, {
    name: "other",
    annotations: { "kube-router.io/peer.ips": "192.0.2.252", "kube-router.io/peer.asns": "2" },
  });
  planner.setService(WEB, service({ "198.51.100.1": "loadBalancerIps" }));
  assertEquals(peers(planner), [
    "peer_192_0_2_253 192.0.2.253 64700 external",
    "tor 192.0.2.254 64600 external",
  ]);
  assertEquals(planner.plan!.announced[0]!.communities, ["64512:7"]);
});

Deno.test("BgpPlanner imports pod ranges of the mesh, and nothing of its own", () => {
  const planner = stage({ settings: { mesh: true } });
  setNode(planner, { name: "b", addresses: ["192.0.2.2"], podCidrs: ["10.1.1.0/24"] });
  planner.setServiceRanges([parseCidr("10.96.0.0/16")]);
  planner.update();
  const { mesh, refused, external, defaultRoute } = planner.plan!.imports;
  assertEquals(mesh as readonly string[], ["10.1.1.0/24"]);
  assertEquals(refused as readonly string[], [
    "10.1.0.0/24",
    "10.96.0.0/16",
    "192.0.2.1/32",
    "192.0.2.2/32",
    "198.51.100.0/24",
    "203.0.113.0/24",
  ]);
  assertEquals([external, defaultRoute] as unknown[], [[], false]);
  const whole = stage({ settings: { mesh: true }, clusterCidrs: [parseCidr("10.1.0.0/16")] });
  whole.update();
  assertEquals(whole.plan!.imports.mesh as readonly string[], ["10.1.0.0/16"]);
});

Deno.test("BgpPlanner has one session for an address, with the first of the nodes that have it", () => {
  const planner = stage({ settings: { mesh: true } });
  for (const name of ["c", "b"]) setNode(planner, { name, addresses: ["192.0.2.2"] });
  setNode(planner, { name: "a", addresses: ["192.0.2.1"] });
  assertEquals(peers(planner), [
    "node_b_v4 192.0.2.2 64512 mesh",
    "tor 192.0.2.254 64600 external",
  ]);
});

Deno.test("BgpPlanner plans only the Services anew that a changed Node concerns", () => {
  const planner = stage({ settings: { mesh: true } });
  for (let number = 0; number < 10_000; number++) {
    const address = `198.51.${100 + (number >> 8)}.${number & 255}`;
    const key = `default/s${number}` as ServiceKey;
    planner.setService(key, service({ [address]: "loadBalancerIps" }));
  }
  for (let number = 0; number < 1_000; number++) {
    setNode(planner, { name: `n${number}`, addresses: [`10.9.${number >> 8}.${number & 255}`] });
  }
  planner.update();
  const steps = () => [...planner.updateInSteps()].length;
  setNode(planner, { name: "n7", addresses: ["10.9.0.7"], conditions: { Ready: "False" } });
  assertEquals(steps(), 0);
  setNode(planner, { name: "n7", addresses: ["10.9.0.7", "198.51.100.7"] });
  const before = planner.plan!;
  // Most of them are for the sessions: one for each 64 nodes.
  const few = steps();
  assert(few < 100, `${few} steps for one Node`);
  assertEquals(before.announced.length - planner.plan!.announced.length, 1);
  const { announced: same } = planner.plan!;
  setNode(planner, { name: "own", addresses: ["192.0.2.3"], podCidrs: ["10.1.0.0/24"] });
  assert(steps() < 100);
  assert(planner.plan!.announced === same);
});

Deno.test("BgpPlanner keeps what a change does not concern", () => {
  const planner = stage({ settings: { mesh: true } });
  for (let number = 0; number < 1000; number++) {
    const address = `198.51.100.${number % 256}`;
    planner.setService(
      `default/s${number}` as ServiceKey,
      service({ [address]: "loadBalancerIps" }),
    );
  }
  const before = updated(planner);
  // With the range of the pods.
  assertEquals(before.announced.length, 257);
  assert(updated(planner) === before);
  setNode(planner, { name: "own", addresses: ["192.0.2.1"], podCidrs: ["10.1.0.0/24"] });
  assert(updated(planner) === before);
  setNode(planner, {
    name: "own",
    addresses: ["192.0.2.1"],
    podCidrs: ["10.1.0.0/24"],
    labels: {},
  });
  assert(updated(planner) === before);
  // Another Service still has the address.
  planner.setService("default/s1" as ServiceKey, undefined);
  assert(updated(planner) === before);
  planner.setService(WEB, service({ "192.0.2.50": "loadBalancerIps" }));
  let steps = 0;
  for (const _ of planner.updateInSteps()) steps++;
  assert(steps < 10, `${steps} steps for one Service`);
  const { plan } = planner;
  assertEquals(
    plan!.announced.filter((each) => !before.announced.includes(each)).map(({ prefix }) =>
      `${prefix}`
    ),
    ["192.0.2.50/32"],
  );
  assert(plan!.peers === before.peers && plan!.imports === before.imports);
  assert(plan!.announced[2] === before.announced[1]);
});

type PlannerSettings = Omit<BgpPlannerOptions, "nodeName">;

const WIDE: PlannerSettings = {
  settings: {
    ...SETTINGS,
    mesh: true,
    advertise: { ...SETTINGS.advertise, externalIps: true, serviceRanges: true },
    externalIpRanges: [parseCidr("192.0.2.0/28")],
  },
  pools: POOLS,
  clusterCidrs: [],
};

/** Each of them changes the plan. */
const OTHER_SETTINGS: readonly PlannerSettings[] = [
  WIDE,
  {
    ...WIDE,
    settings: { ...WIDE.settings, localAs: 64_999, routerId: "192.0.2.200", peers: [] },
  },
  { ...WIDE, settings: { ...WIDE.settings, mesh: false } },
  { ...WIDE, settings: { ...WIDE.settings, nodeAnnotations: false } },
  { ...WIDE, settings: { ...WIDE.settings, communities: ["64512:7"], localPreference: 7 } },
  { ...WIDE, settings: { ...WIDE.settings, advertise: SETTINGS.advertise } },
  {
    ...WIDE,
    settings: {
      ...WIDE.settings,
      imports: { ...SETTINGS.imports, external: [parseCidr("10.0.0.0/8")] },
    },
  },
  { ...WIDE, pools: [pool("routed", ["198.51.100.0/24"])] },
  { ...WIDE, pools: [], clusterCidrs: [parseCidr("10.244.0.0/16")] },
];

const address = fc.constantFrom("198.51.100.1", "198.51.100.2", "203.0.113.1", "192.0.2.7");
const kind = fc.constantFrom<ServiceAddressKind>("loadBalancerIps", "externalIps", "clusterIps");
const parts = fc.record({
  addresses: fc.dictionary(address, kind, { maxKeys: 3 }),
  obstacle: fc.option(fc.constant("no endpoint"), { nil: undefined }),
  switches: fc.constantFrom<AnnouncedService["switches"]>({}, {}, { clusterIps: true }),
});

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ service: fc.nat(4), parts, isGone: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      node: fc.nat(2),
      has: fc.subarray(["192.0.2.1", "192.0.2.7", "198.51.100.2"]),
      label: fc.boolean(),
      isReady: fc.boolean(),
      isGone: fc.boolean(),
    }),
  },
  fc.record({ isDraining: fc.boolean() }),
  fc.record({ ranges: fc.subarray(["10.96.0.0/16", "fd00::/112"]) }),
  fc.record({ settings: fc.constantFrom<PlannerSettings>(...OTHER_SETTINGS) }),
);

/** A planner whose own Node has annotations, of which one is wrong. */
function annotated(settings: PlannerSettings): BgpPlanner {
  const planner = new BgpPlanner({ ...settings, nodeName: "own" });
  const annotations = { "kube-router.io/node.asn": "64700", "kube-router.io/peers": "nonsense" };
  setNode(planner, {
    name: "own",
    addresses: ["192.0.2.1"],
    podCidrs: ["10.1.0.0/24"],
    annotations,
  });
  return planner;
}

Deno.test("BgpPlanner plans in steps as from scratch, in any history", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 25 }), (history) => {
      let settings = WIDE;
      const planner = annotated(settings);
      const last = new Map<string, (planner: BgpPlanner) => void>();
      for (const each of history) {
        let key: string;
        let act: (planner: BgpPlanner) => void;
        if ("settings" in each) {
          key = "settings";
          settings = each.settings;
          planner.setSettings(settings);
          act = () => {};
        } else if ("service" in each) {
          key = `default/s${each.service}`;
          const { addresses, obstacle, switches } = each.parts;
          const options = { ...(obstacle !== undefined && { obstacle }), switches };
          const found = each.isGone ? undefined : service(addresses, options);
          act = (one) => one.setService(key as ServiceKey, found);
        } else if ("node" in each) {
          key = each.node === 0 ? "own" : `node-${each.node}`;
          const isGone = each.isGone && key !== "own";
          const node = {
            name: key,
            addresses: each.has,
            podCidrs: [`10.1.${each.node}.0/24`],
            conditions: { Ready: each.isReady ? "True" : "False" },
            ...(each.label && {
              labels: { "node.kubernetes.io/exclude-from-external-load-balancers": "" },
            }),
          };
          act = (one) => isGone ? one.setNode(key, undefined) : setNode(one, node);
        } else if ("isDraining" in each) {
          key = "drain";
          act = (one) => one.setDraining(each.isDraining);
        } else {
          key = "ranges";
          act = (one) => one.setServiceRanges(each.ranges.map(parseCidr));
        }
        act(planner);
        last.delete(key);
        last.set(key, act);
        planner.update();
        const scratch = annotated(settings);
        for (const repeat of [...last.values()].reverse()) repeat(scratch);
        scratch.update();
        assertEquals(planner.plan, scratch.plan);
      }
    }),
    { numRuns: 200 },
  );
});

Deno.test("BgpPlanner announces 140,000 addresses that come in one update", () => {
  const planner = stage({
    settings: {
      advertise: { ...SETTINGS.advertise, externalIps: true },
      externalIpRanges: [parseCidr("2001:db8:1::/48")],
    },
  });
  planner.update();
  for (const [index, key] of [WEB, API].entries()) {
    const addresses = Array.from({ length: 70_000 }, (_, number) => {
      const hex = number.toString(16).padStart(5, "0");
      return [`2001:db8:1::${index + 1}:${hex[0]}:${hex.slice(1)}`, "externalIps"] as const;
    });
    planner.setService(key, service(Object.fromEntries(addresses)));
  }
  assertEquals(updated(planner).announced.length, 140_000);
});

Deno.test("BgpPlanner has a session with both families announce by the node's address of the other one", () => {
  const hop = (peer: Partial<ConfiguredPeer>, addresses: readonly string[]) => {
    const planner = stage({ settings: { peers: [{ ...PEER, ...peer }] }, own: { addresses } });
    return updated(planner).peers[0]!.otherNextHop as string | undefined;
  };
  const both = ["192.0.2.1", "2001:db8::1"];
  assertEquals(hop({}, both), undefined);
  assertEquals(hop({ bothFamilies: true }, both), "2001:db8::1");
  assertEquals(hop({ bothFamilies: true }, ["192.0.2.1"]), undefined, "it has no such address");
  const otherNextHop = parseIpAddress("2001:db8::99");
  assertEquals(hop({ bothFamilies: true, otherNextHop }, both), "2001:db8::99");
  const address = parseIpAddress("2001:db8::fe");
  assertEquals(hop({ bothFamilies: true, address }, both), "192.0.2.1");
});
