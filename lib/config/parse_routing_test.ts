import { assert, assertEquals, assertThrows } from "@std/assert";
import { addressAt } from "../net/ip_address.ts";
import { API_VERSION, defaultConfiguration, KIND, parseConfiguration } from "./configuration.ts";
import { parseRouting, routingSettingsOf } from "./parse_routing.ts";
import type { RoutingConfiguration } from "./routing.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The block of a file that has only these fields. */
function read(routing: Fields): RoutingConfiguration {
  const given = { apiVersion: API_VERSION, kind: KIND, routing };
  const { configuration, problems } = parseConfiguration(given);
  assertEquals(problems, []);
  return configuration!.routing;
}

function problemsOf(routing: Fields): readonly string[] {
  const found: string[] = [];
  parseRouting(read(routing), (isRight, path, message) => {
    if (!isRight) found.push(`${path}: ${message}`);
  });
  return found;
}

/** Pools as text: name, ranges, further fields. */
function poolsOf(routing: Fields): readonly string[] {
  return routingSettingsOf(read(routing)).pools.map(({ name, ranges, autoAssign, announce }) => {
    const texts = ranges.map(({ family, first, last }) =>
      [first, last].map((end) => addressAt(end, family)).join("-")
    );
    return `${name} ${texts.join(" ")} ${autoAssign ? "auto" : "asked"} ${announce}`;
  });
}

Deno.test("routingSettingsOf() of the defaults has no pool and no BGP", () => {
  const settings = routingSettingsOf(defaultConfiguration().routing);
  assertEquals(settings.pools, []);
  assertEquals(settings.bgp, undefined);
  assertEquals(settings.loadBalancerClasses, ["kube-relay.io/load-balancer"]);
});

Deno.test("routingSettingsOf() joins the texts of a pool", () => {
  assertEquals(
    poolsOf({ pools: ["192.0.2.0/30", "office=198.51.100.7", "2001:db8::-2001:db8::f"] }),
    [
      "default 192.0.2.0-192.0.2.3 2001:db8::-2001:db8::f auto layer2",
      "office 198.51.100.7-198.51.100.7 auto layer2",
    ],
  );
});

Deno.test("routingSettingsOf() reads every field of a pool", () => {
  const pools = [{
    name: "office",
    addresses: ["192.0.2.1"],
    autoAssign: false,
    priority: 7,
    announce: "none",
    namespaceSelector: { matchLabels: { team: "web" } },
    nodeSelector: { matchExpressions: [{ key: "rack", operator: "In", values: ["b", "a"] }] },
  }];
  assertEquals(poolsOf({ pools }), ["office 192.0.2.1-192.0.2.1 asked none"]);
  const [pool] = routingSettingsOf(read({ pools })).pools;
  assertEquals(pool!.namespaceSelector!.text, '[["team","In",["web"]]]');
  assertEquals(pool!.nodeSelector!.text, '[["rack","In",["a","b"]]]');
  assertEquals([pool!.serviceSelector, pool!.priority], [undefined, 7]);
  assertEquals(routingSettingsOf(read({ pools: ["192.0.2.1"] })).pools[0]!.priority, undefined);
});

Deno.test("routingSettingsOf() reads peers as texts and as blocks", () => {
  const peers = [
    "64513@192.0.2.1",
    "64513@[2001:db8::1]:1790",
    { name: "tor", address: "2001:db8::2", as: 64514, bfd: true, gracefulRestartSeconds: 0 },
  ];
  const found = routingSettingsOf(read({ bgp: { enabled: true, localAs: 64512, peers } })).bgp!;
  assertEquals(found.localAs, 64512);
  assertEquals(found.peers.map(({ name, as, port }) => `${name} ${as} ${port}`), [
    "peer_192_0_2_1 64513 179",
    "peer_2001_db8__1 64513 1790",
    "tor 64514 179",
  ]);
  assertEquals(found.peers.map((peer) => peer.gracefulRestartSeconds), [120, 120, undefined]);
});

Deno.test("routingSettingsOf() has a network of pods if one of its parts is enabled", () => {
  const found = (podNetwork: Fields) => routingSettingsOf(read({ podNetwork })).podNetwork;
  assertEquals(found({ masquerade: true, mtu: 1400 }), undefined);
  assertEquals(found({ overlay: "always" })?.routes, true);
  assertEquals(found({ cniConfig: "/etc/cni/net.d/1.conflist" })?.routes, false);
});

const WRONG: readonly [fields: Fields, ...problems: string[]][] = [
  [
    { loadBalancerClasses: ["metallb.io/metallb", "a/b/c"], leaseNamespace: "Kube" },
    "routing.loadBalancerClasses.1: Expected a class such as kube-relay.io/load-balancer, found 'a/b/c'",
    "routing.leaseNamespace: Expected the name of a namespace, found 'Kube'",
  ],
  [
    { pools: ["192.0.2.0/33", "A=192.0.2.1"] },
    "routing.pools.0: Expected a CIDR such as 192.0.2.0/24 or a range such as " +
    "192.0.2.10-192.0.2.20, found '192.0.2.0/33'",
    "routing.pools.1: Expected a name of at most 63 small letters, digits and '-', with a letter " +
    "or digit at both ends, found 'A'",
  ],
  [
    { pools: [{ name: "a", addresses: ["126.0.0.0-128.0.0.0"] }, { name: "a" }] },
    "routing.pools.0.addresses.0: Expected addresses that are not unspecified, loopback, " +
    "link-local, multicast or reserved, found '126.0.0.0-128.0.0.0'",
    "routing.pools.1: Expected each pool once, found 'a' again",
    "routing.pools.1.addresses: Expected at least one range, found none",
  ],
  [
    { pools: ["a=192.0.2.0/24", "b=198.51.100.1", "c=192.0.2.255-192.0.3.1", "d=2001:db8::/64"] },
    "routing.pools.2: Expected addresses that no other range has, found " +
    "'192.0.2.255-192.0.3.1', which overlaps '192.0.2.0/24' of pool 'a'",
  ],
  [
    { pools: ["a=192.0.2.0/24", "b=192.0.2.8/29", "c=192.0.2.64/26"] },
    "routing.pools.1: Expected addresses that no other range has, found " +
    "'192.0.2.8/29', which overlaps '192.0.2.0/24' of pool 'a'",
    "routing.pools.2: Expected addresses that no other range has, found " +
    "'192.0.2.64/26', which overlaps '192.0.2.0/24' of pool 'a'",
  ],
  [
    { announce: "arp", pools: ["192.0.2.1"] },
    "routing.announce: Expected one of layer2, bgp, none, found 'arp'",
  ],
  [
    { pools: [{ name: "a", addresses: ["192.0.2.1"], announce: "bgp" }] },
    "routing.pools.0.announce: Expected layer2 or none, since routing.bgp.enabled is false; found " +
    "'bgp'",
  ],
  [
    {
      pools: [{
        name: "a",
        addresses: ["192.0.2.1"],
        serviceSelector: { matchExpressions: [{ key: "a", operator: "In" }] },
      }],
    },
    "routing.pools.0.serviceSelector.matchExpressions.0.values: Expected at least one value for " +
    "the operator In, found none",
  ],
  [
    { layer2: { interfaces: ["a/b"] } },
    "routing.layer2.interfaces.0: Expected the name of an interface, at most 15 bytes without " +
    "blank, slash or colon, found 'a/b'",
  ],
  [
    { bgp: { localAs: 23456, routerId: "2001:db8::1" } },
    "routing.bgp.localAs: Expected an AS number that is not reserved, such as 64512, found 23456",
    "routing.bgp.routerId: Expected an IPv4 address such as 192.0.2.1, also for IPv6, found " +
    "'2001:db8::1'",
  ],
  [
    { bgp: { advertise: { externalIps: true } } },
    "routing.bgp.externalIpRanges: Expected at least one CIDR, since advertise.externalIps is " +
    "true; found none. Every user who may create Services chooses their external IPs",
  ],
  [
    { bgp: { peers: ["192.0.2.1", "64512@2001:db8::1:1790:x", "1@192.0.2.1", "2@192.0.2.1"] } },
    "routing.bgp.peers.0: Expected a peer such as 64512@192.0.2.1, 64512@192.0.2.1:1790 or " +
    "64512@[2001:db8::1]:1790, found '192.0.2.1'",
    "routing.bgp.peers.1: Expected a peer such as 64512@192.0.2.1, 64512@192.0.2.1:1790 or " +
    "64512@[2001:db8::1]:1790, found '64512@2001:db8::1:1790:x'",
    "routing.bgp.peers.3: Expected each peer once, found 192.0.2.1 port 179 again",
    "routing.bgp.peers.3: Expected each name once, found 'peer_192_0_2_1' again",
  ],
  [
    {
      bgp: {
        peers: [
          { address: "192.0.2.1", as: 1, bothFamilies: true, otherNextHop: "192.0.2.7" },
          { address: "192.0.2.2", as: 1, otherNextHop: "2001:db8::1" },
        ],
      },
    },
    "routing.bgp.peers.0.otherNextHop: Expected an address of the family that 192.0.2.1 does not " +
    "have, together with bothFamilies: true, found '192.0.2.7'",
    "routing.bgp.peers.1.otherNextHop: Expected an address of the family that 192.0.2.2 does not " +
    "have, together with bothFamilies: true, found '2001:db8::1'",
  ],
  [
    { bgp: { peers: [{ address: "192.0.2.1", localAddress: "2001:db8::1", passwordFile: "p" }] } },
    "routing.bgp.peers.0.as: Expected an AS number that is not reserved, such as 64512, found 0",
    "routing.bgp.peers.0.localAddress: Expected an IPv4 address, as that of the peer, found " +
    "'2001:db8::1'",
    "routing.bgp.peers.0.passwordFile: Expected an absolute path of at most 4095 bytes without " +
    "quotes and line breaks, found 'p'",
  ],
  [
    { bgp: { communities: ["64512:65536"], largeCommunities: ["1:2"] } },
    "routing.bgp.communities.0: Expected 2 numbers from 0 to 65535 such as 64512:100, found " +
    "'64512:65536'",
    "routing.bgp.largeCommunities.0: Expected 3 numbers from 0 to 4294967295 such as 64512:1:100, " +
    "found '1:2'",
  ],
  [
    { podNetwork: { overlay: "yes", cniConfig: "pods.conf", mtu: 576 } },
    "routing.podNetwork.overlay: Expected one of off, cross-subnet, always, found 'yes'",
    "routing.podNetwork.cniConfig: Expected an absolute path that ends in .conflist, found 'pods.conf'",
    "routing.podNetwork.mtu: Expected 0 or at least 1280, which IPv6 needs, found 576",
  ],
  [
    { podNetwork: { routes: true }, bgp: { imports: { metric: 256 } } },
    "routing.bgp.imports.metric: Expected another metric than 256, which routes of " +
    "routing.podNetwork have",
  ],
  [
    { bgp: { imports: { external: ["0.0.0.0/0"] } } },
    "routing.bgp.imports.external: Expected ranges of routes, found all addresses; set " +
    "imports.defaultRoute to accept a default route",
  ],
  [
    peerImporting({ prefixes: ["10.0.0.0", "2001:db8::/32", "0.0.0.0/0"] }),
    "routing.bgp.peers.0.import.prefixes.0: Expected a CIDR such as 10.244.0.0/16 or fd00::/48, " +
    "found '10.0.0.0'",
    "routing.bgp.peers.0.import.prefixes.1: Expected an IPv4 prefix, as the address of the peer, " +
    "found '2001:db8::/32'",
    "routing.bgp.peers.0.import.prefixes.2: Expected a minLength of 1 or more for 0.0.0.0/0, found " +
    "none; set defaultRoute to accept a default route",
  ],
  [
    peerImporting({
      prefixes: [{ prefix: "10.0.0.0/8", minLength: 7 }, { prefix: "10.0.0.0/8", maxLength: 33 }],
      clusterPrefixes: [{ prefix: "10.0.0.0/8", minLength: 24, maxLength: 16 }],
    }),
    "routing.bgp.peers.0.import.prefixes.0.minLength: Expected a number from 8 to 32 for " +
    "10.0.0.0/8, found 7",
    "routing.bgp.peers.0.import.prefixes.1.maxLength: Expected a number from 8 to 32 for " +
    "10.0.0.0/8, found 33",
    "routing.bgp.peers.0.import.clusterPrefixes.0.maxLength: Expected a number from 24 to 32 for " +
    "10.0.0.0/8, found 16",
  ],
];

/** A peer with imports of its own. */
function peerImporting(fields: Fields): Fields {
  return { bgp: { enabled: true, peers: [{ address: "192.0.2.1", as: 64513, import: fields }] } };
}

Deno.test("routingSettingsOf() reads what a peer may send", () => {
  const found = (fields: Fields) =>
    routingSettingsOf(read(peerImporting(fields))).bgp!.peers[0]!.import;
  assertEquals(found({}), { prefixes: [], clusterPrefixes: [], defaultRoute: false });
  const texts = (given: readonly unknown[]) =>
    found({ prefixes: given })!.prefixes.map(({ prefix, minLength, maxLength }) =>
      `${prefix} ${minLength}-${maxLength}`
    );
  assertEquals(
    texts([
      "10.0.0.0/8",
      { prefix: "10.0.0.0/8", minLength: 16 },
      { prefix: "10.0.0.0/8", maxLength: 24 },
      { prefix: "0.0.0.0/0", minLength: 8, maxLength: 24 },
    ]),
    ["10.0.0.0/8 8-32", "10.0.0.0/8 16-32", "10.0.0.0/8 8-24", "0.0.0.0/0 8-24"],
  );
  const plain = routingSettingsOf(read({ bgp: { enabled: true, peers: ["64513@192.0.2.1"] } }));
  assertEquals(plain.bgp!.peers[0]!.import, undefined);
});

Deno.test("parseRouting() names field, value and what would be right", () => {
  for (const [fields, ...problems] of WRONG) assertEquals(problemsOf(fields), problems);
});

Deno.test("routingSettingsOf() throws for what validation would have refused", () => {
  assertThrows(() => routingSettingsOf(read({ pools: ["x"] })), TypeError, "routing.pools.0");
});

Deno.test("parseConfiguration() refuses unknown fields and wrong numbers of pools and peers", () => {
  const problems = (routing: Fields) =>
    parseConfiguration({ apiVersion: API_VERSION, kind: KIND, routing }).problems
      .map(({ path, message }) => `${path.join(".")}: ${message}`);
  const [unknown] = problems({ pools: [{ name: "a", adresses: ["192.0.2.1"] }] });
  assert(
    unknown!.startsWith("routing.pools.0.adresses: Expected one of the fields name, addresses"),
  );
  assertEquals(problems({ bgp: { peers: [{ address: "192.0.2.1", holdTimeSeconds: 1 }] } }), [
    "routing.bgp.peers.0.holdTimeSeconds: Expected a whole number from 3 to 65535, found 1",
  ]);
  assertEquals(problems({ pools: [5] }), ["routing.pools.0: Expected fields, found 5"]);
  assertEquals(problems({ pools: [{ addresses: ["192.0.2.1"] }] }), [
    "routing.pools.0.name: Expected a value, found nothing",
  ]);
  const [peer] = problems({ bgp: { peers: [{ bdf: true }] } });
  assert(peer!.endsWith("found \"bdf\"; did you mean 'bfd'?"), peer);
});
