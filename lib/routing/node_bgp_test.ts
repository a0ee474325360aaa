import { assertEquals } from "@std/assert";
import { nodeBgpOf } from "./node_bgp.ts";

const PREFIX = "kube-router.io/";

function read(annotations: Readonly<Record<string, string>>) {
  const named = Object.entries(annotations).map(([name, value]) => [PREFIX + name, value]);
  const { bgp, problems } = nodeBgpOf({ name: "n", annotations: Object.fromEntries(named) });
  const texts = problems.map(({ path, value, message }) =>
    `${path.replace(`metadata.annotations["${PREFIX}`, "").replace('"]', "")} ${value}: ${message}`
  );
  return { bgp, texts };
}

Deno.test("nodeBgpOf() reads kube-router's annotations", () => {
  const { bgp, texts } = read({
    "node.asn": "64600",
    "rr.server": "42",
    "rr.client": "10.0.0.1",
    "path-prepend.as": "64600",
    "path-prepend.repeat-n": "3",
    "node.bgp.communities": "64600:1, no-export,4294967295",
    "node.bgp.customimportreject": "10.0.0.0/16, fd00::/64",
    "peer.ips": "192.0.2.1,2001:db8::1",
    "peer.asns": "64700,64701",
    "peer.ports": ",1790",
    "peer.localips": "192.0.2.9,",
    "peer.passwords": ",",
  });
  assertEquals(texts, []);
  assertEquals(bgp.as, 64600);
  assertEquals(bgp.reflector, "0.0.0.42");
  assertEquals(bgp.reflectorClient, "10.0.0.1");
  assertEquals(bgp.prepend, 3);
  assertEquals(bgp.communities, ["64600:1", "65535:65281", "65535:65535"]);
  assertEquals(bgp.refused as readonly string[], ["10.0.0.0/16", "fd00::/64"]);
  assertEquals(
    bgp.peers.map(({ name, as, port, localAddress }) => `${name} ${as} ${port} ${localAddress}`),
    ["peer_192_0_2_1 64700 179 192.0.2.9", "peer_2001_db8__1 64701 1790 undefined"],
  );
});

Deno.test("nodeBgpOf() reads peers as YAML instead of the lists", () => {
  const { bgp, texts } = read({
    peers: "- remoteip: 192.0.2.1\n  remoteasn: 64700\n  port: 1790\n  localip: 192.0.2.9\n",
    "peer.ips": "192.0.2.2",
  });
  assertEquals(texts, []);
  const [peer] = bgp.peers;
  assertEquals(bgp.peers.length, 1);
  assertEquals([peer!.address, peer!.as, peer!.port, peer!.localAddress] as unknown[], [
    "192.0.2.1",
    64700,
    1790,
    "192.0.2.9",
  ]);
});

const WRONG: readonly [annotations: Readonly<Record<string, string>>, ...problems: string[]][] = [
  [{ "node.asn": "23456" }, "node.asn 23456: The AS number is not used: the number is not valid"],
  [
    { "rr.server": "fd00::1", "rr.client": "0" },
    "rr.server fd00::1: The node is neither reflector nor client: the ID has to be a number from 1 " +
    "to 4294967295 or an IPv4 address",
    "rr.client 0: The node is neither reflector nor client: the ID has to be a number from 1 to " +
    "4294967295 or an IPv4 address",
  ],
  [
    { "node.asn": "64600", "path-prepend.as": "1", "path-prepend.repeat-n": "3" },
    "path-prepend.as 1: Nothing is prepended to paths: the AS has to be that of the node",
  ],
  [
    { "path-prepend.as": "1", "path-prepend.repeat-n": "33" },
    "path-prepend.repeat-n 33: Nothing is prepended to paths: the number is not valid",
  ],
  [
    { "node.bgp.communities": "internet,1:65536,4294967296,toString" },
    ...["internet", "1:65536", "4294967296", "toString"].map((text, index) =>
      `node.bgp.communities[${index}] ${text}: The community is not sent: it has to be as 64512:100, a ` +
      "number of 32 bits, or a name such as no-export"
    ),
  ],
  [
    { "node.bgp.customimportreject": "10.0.0.0" },
    "node.bgp.customimportreject[0] 10.0.0.0: The range is not refused: it has to be a CIDR block",
  ],
  [
    { peers: "- remoteip: 192.0.2.1\n  remoteasn: 64700\n  password: c2VjcmV0\n" },
    "peers[0] (not shown): The peer is not used: a password does not belong in an annotation; add " +
    "the peer to routing.bgp.peers with a passwordFile",
  ],
  [
    { peers: "- {remoteip: x, remoteasn: 1}\n- {remoteip: 192.0.2.1}\n- 7\n" },
    "peers[0] x: The peer is not used: its address has to be an IP address",
    "peers[1] : The peer is not used: its AS number is missing or not valid",
    "peers[2] : The peer is not used: its address has to be an IP address",
  ],
  ...["{", "secret: x", `[${"1,".repeat(64)}1]`, " ".repeat(16_385)].map((
    peers,
  ): [Readonly<Record<string, string>>, string] => [
    { peers },
    "peers (not shown): No peer of the annotation is used: it has to be a YAML list of at most 64 " +
    "peers",
  ]),
  [
    { "peer.ips": "192.0.2.1", "peer.asns": "64700", "peer.passwords": "c2VjcmV0" },
    "peer.ips[0] (not shown): The peer is not used: a password does not belong in an annotation; add " +
    "the peer to routing.bgp.peers with a passwordFile",
  ],
  [
    { "bgp-local-addresses": "192.0.2.9" },
    "bgp-local-addresses 192.0.2.9: The addresses are not used: BIRD listens on all; give a peer its " +
    "localAddress",
  ],
  [
    { "peer.ips": "192.0.2.1,192.0.2.2", "peer.asns": "64700", "peer.localips": "fd00::1" },
    "peer.ips[0] fd00::1: The peer is not used: its local address has to be an IP address of the " +
    "same family",
    "peer.ips[1] : The peer is not used: its AS number is missing or not valid",
  ],
];

Deno.test("nodeBgpOf() leaves out what it cannot use, and says why", () => {
  for (const [annotations, ...problems] of WRONG) {
    const { bgp, texts } = read(annotations);
    assertEquals(texts, problems);
    assertEquals(bgp.peers, []);
    assertEquals([bgp.prepend, bgp.communities, bgp.refused] as unknown[], [0, [], []]);
  }
});

Deno.test("nodeBgpOf() reads no list in place of a value: aliases of YAML could make it endless", () => {
  const levels = ["- &a0 [x]\n"];
  for (let level = 1; level <= 7; level++) {
    levels.push(`- &a${level} [${Array(9).fill(`*a${level - 1}`).join()}]\n`);
  }
  const usual = { remoteip: "192.0.2.1", remoteasn: "64513" };
  const peers = Object.keys({ ...usual, localip: "", port: "", password: "" }).map((field) => {
    const fields = Object.entries({ ...usual, [field]: "*a7" });
    return `- {${fields.map(([name, value]) => `${name}: ${value}`).join(", ")}}\n`;
  });
  const { bgp, problems } = nodeBgpOf({
    name: "n",
    annotations: { "kube-router.io/peers": [...levels, ...peers].join("") },
  });
  assertEquals(bgp.peers, []);
  assertEquals(problems.slice(-5).map(({ value }) => value), [
    ...Array(4).fill("(a list or an object)"),
    "(not shown)",
  ]);
});

Deno.test("nodeBgpOf() uses at most 64 communities, which each route gets", () => {
  const texts = Array.from({ length: 100 }, (_, index) => `64512:${index}`);
  const { bgp, problems } = nodeBgpOf({
    name: "n",
    annotations: { "kube-router.io/node.bgp.communities": texts.join() },
  });
  assertEquals(bgp.communities, texts.slice(0, 64));
  assertEquals(problems.map(({ value, message }) => `${value}: ${message}`), [
    "100: Only the first 64 communities are sent",
  ]);
});
