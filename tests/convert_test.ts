/** `kube-relay convert metallb`, and that `kube-relay check` takes what it prints. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { withFolder } from "./support/with_folder.ts";

/** Converts a text; the result is checked, too, unless it has no objects. */
async function convert(text: string) {
  return await withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/in.yaml`, text);
    const { code, out, err } = await runInProcess(["convert", "metallb", `${folder}/in.yaml`]);
    if (/^kind:/m.test(out)) {
      await Deno.writeTextFile(`${folder}/out.yaml`, out);
      const socket = `--control-socket=${folder}/none.sock`;
      const checked = await runInProcess(["check", `${folder}/out.yaml`, socket]);
      assertEquals([checked.code, checked.out], [0, "No problems in 1 file\n"], out);
    }
    return { code, out, err: err.replaceAll(`${folder}/`, "") };
  });
}

const object = (kind: string, name: string, spec: string, more = "") =>
  `---
apiVersion: metallb.io/v1beta1
kind: ${kind}
metadata: {name: ${name}, namespace: metallb-system${more}}
spec: ${spec}
`;
const pool = (spec: string, more = "") =>
  object("IPAddressPool", "office", `{addresses: [192.0.2.0/28]${spec}}`, more);
const peer = (spec: string) =>
  object("BGPPeer", "tor", `{myASN: 64512, peerAddress: 192.0.2.1${spec}}`);
const L2 = object("L2Advertisement", "l2", "{}");
const SELECTORS =
  "[{matchLabels: {rack: a}}, {matchExpressions: [{key: rack, operator: In, values: [b]}]}]";

/** What MetalLB has, and the lines that the result has among others. */
const CASES: readonly (readonly [what: string, given: string, ...lines: readonly string[]])[] = [
  [
    "a pool without advertisement",
    pool(""),
    "# no advertisement selects the pool",
    'announce: "none"',
  ],
  ["an advertisement of all pools", pool("") + L2, 'announce: "layer2"'],
  [
    "an advertisement of other pools",
    pool("") + object("L2Advertisement", "l2", "{ipAddressPools: [rare]}"),
    'announce: "none"',
  ],
  [
    "an advertisement by labels of pools",
    pool("", ", labels: {zone: a}") +
    object("BGPAdvertisement", "far", "{ipAddressPoolSelectors: [{matchLabels: {zone: a}}]}"),
    "#   --bgp",
    'announce: "bgp"',
  ],
  [
    "both ways of announcing",
    pool("") + L2 + object("BGPAdvertisement", "far", "{}"),
    "# MetalLB also announces the addresses by BGP",
    'announce: "layer2"',
  ],
  [
    "settings of an advertisement",
    pool("") + object(
      "BGPAdvertisement",
      "far",
      "{aggregationLength: 24, localPref: 100, communities: [vpn, 'large:64512:1:2'], peers: [tor]}",
    ) + object("Community", "c", "{communities: [{name: vpn, value: '64512:7'}]}"),
    "# BGPAdvertisement far: aggregationLength 24 is not used: each address is a prefix",
    "#   routing.bgp.localPreference: 100",
    '#   routing.bgp.communities: ["64512:7"]',
    '#   routing.bgp.largeCommunities: ["64512:1:2"]',
    "# BGPAdvertisement far: its peers (tor) are not the only ones",
  ],
  [
    "interfaces and nodes of an advertisement",
    pool("") + object("L2Advertisement", "l2", `{interfaces: [eth0], nodeSelectors: ${SELECTORS}}`),
    "#   --arp-interfaces=eth0",
    'nodeSelector: {"matchExpressions":[{"key":"rack","operator":"In","values":["a","b"]}]}',
  ],
  [
    "an advertisement of all nodes next to one of some",
    pool("") + object("L2Advertisement", "some", `{nodeSelectors: ${SELECTORS}}`) + L2,
    'announce: "layer2"',
  ],
  [
    "selectors that one selector cannot say",
    pool(", serviceAllocation: {serviceSelectors: [{matchLabels: {a: b}}, {matchLabels: {c: d}}]}"),
    "# MetalLB has 2 selectors; this is the first one",
    'serviceSelector: {"matchLabels":{"a":"b"}}',
  ],
  [
    "namespaces and a priority",
    pool(", autoAssign: false, serviceAllocation: {priority: 50, namespaces: [shop, web]}"),
    "autoAssign: false",
    "priority: 50",
    'namespaceSelector: {"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In",' +
    '"values":["shop","web"]}]}',
  ],
  [
    "addresses that old devices refuse",
    object("IPAddressPool", "office", "{addresses: [192.0.2.0-192.0.3.9], avoidBuggyIPs: true}"),
    'addresses: ["192.0.2.1-192.0.2.254","192.0.3.1-192.0.3.9"]',
  ],
  ["a field of a newer MetalLB", pool(", shiny: true"), "# shiny of IPAddressPool is not known"],
  ["a name that is none here", pool("").replace("office", "Of.fice"), "# MetalLB's name: Of.fice"],
  [
    "a peer",
    peer(
      ", peerASN: 64513, peerPort: 1790, sourceAddress: 192.0.2.9, holdTime: 30s, ebgpMultiHop: true",
    ),
    "#   --bgp-local-as=64512",
    ...['address: "192.0.2.1"', "port: 1790", "as: 64513", 'localAddress: "192.0.2.9"'],
    ...["multihopTtl: 255", "holdTimeSeconds: 30", "gracefulRestartSeconds: 0"],
  ],
  [
    "a peer with more",
    peer(
      ", dynamicASN: internal, enableGracefulRestart: true, bfdProfile: fast, keepaliveTime: 10s, " +
        "dualStackAddressFamily: true, routerID: 192.0.2.7, nodeSelectors: [{matchLabels: {a: b}}]",
    ),
    ...["as: 64512", "gracefulRestartSeconds: 120", "bothFamilies: true", "bfd: true"],
    "# with BIRD's times, not those of fast",
    "# keepaliveTime is not used: BIRD has its own",
    "#   --bgp-router-id=192.0.2.7",
    'nodeSelector: {"matchLabels":{"a":"b"}}',
  ],
  [
    "a password",
    peer(", peerASN: 64513, password: topsecret"),
    "# in routing.leaseNamespace: put the value of password there",
    'passwordSecret: {"name":"kube-relay-bgp","key":"tor"}',
  ],
  [
    "a Secret with a password",
    peer(", peerASN: 64513, passwordSecret: {name: bgp}"),
    "# in routing.leaseNamespace: copy key password of Secret metallb-system/bgp there",
  ],
  [
    "a list, as kubectl writes it",
    JSON.stringify({
      ...{ apiVersion: "v1", kind: "List" },
      items: [{
        ...{
          apiVersion: "metallb.io/v1beta1",
          kind: "IPAddressPool",
          metadata: { name: "office" },
        },
        spec: { addresses: ["192.0.2.0/28"] },
      }],
    }),
    'metadata: { name: "office" }',
  ],
  [
    "the ConfigMap of old versions",
    `kind: ConfigMap
apiVersion: v1
metadata: {name: config}
data:
  config: |
    address-pools:
    - {name: old, protocol: bgp, addresses: [192.0.2.0/28], auto-assign: false,
       bgp-advertisements: [{localpref: 5, communities: [no]}]}
    peers:
    - {my-asn: 64512, peer-asn: 64513, peer-address: 192.0.2.1, hold-time: 9s, password: topsecret}
    bgp-communities: {no: 65535:65281}
`,
    ...['announce: "bgp"', "autoAssign: false", "holdTimeSeconds: 9"],
    ...['#   routing.bgp.communities: ["65535:65281"]', 'metadata: { name: "peer-192-0-2-1" }'],
  ],
];

for (const [what, given, ...lines] of CASES) {
  Deno.test(`convert metallb has an equivalent, or a comment, for ${what}`, async () => {
    const { code, out, err } = await convert(given);
    assertEquals([code, err], [0, ""]);
    const found = out.split("\n").map((line) => line.trim());
    for (const line of lines) assertEquals(found.includes(line.trim()), true, `${line}\n${out}`);
    assertEquals(out.includes("topsecret"), false);
  });
}

/** What has no equivalent, and what is said of it. */
const REFUSED: readonly (readonly [given: string, says: string])[] = [
  [peer(", peerASN: 64513, vrf: red"), 'BGPPeer tor: spec.vrf: Expected no VRF, found "red"'],
  [
    peer(", dynamicASN: external"),
    'spec.dynamicASN: Expected the AS number of the peer, as peerASN, found "external"',
  ],
  [
    object("BGPPeer", "tor", "{peerASN: 64513, interface: eth0}"),
    "spec.peerAddress: Expected an address: sessions by interface are not made, found nothing",
  ],
  [
    peer(", peerASN: 64513, holdTime: soon"),
    'spec.holdTime: Expected a duration such as 90s, found "soon"',
  ],
  [
    peer(", peerASN: 64513, holdTime: 1s"),
    "as BgpPeer tor, spec.holdTimeSeconds: Expected a whole number from 3",
  ],
  [
    peer(", peerASN: 64513, password: [topsecret]"),
    "spec.password: Expected text, found another value",
  ],
  [pool("").replace("192.0.2.0/28", "127.0.0.1/33"), "spec.addresses[0]: Expected a CIDR"],
  [
    pool("") + pool("").replace("office", "Office"),
    'IPAddressPool Office: metadata.name: Expected another name, found "office"',
  ],
  [
    pool("") + pool("").replace("office", "other"),
    "as LoadBalancerPool other, spec.addresses[0]: Expected addresses that no other pool has",
  ],
  [pool(", autoAssign: maybe"), 'spec.autoAssign: Expected true or false, found "maybe"'],
  [
    pool(", serviceAllocation: {namespaceSelectors: [{matchLabels: {a: [b]}}]}"),
    "a list of selectors",
  ],
  [object("IPAddressPool", "'\\e[31m'", "{}").replaceAll("'", '"'), "Expected at least one range"],
  ["kind: IPAddressPool\nspec: {}\n", "IPAddressPool without a name: metadata.name"],
  ["{", "in.yaml:1: Cannot read YAML"],
  ["- a\n", "Expected an object, with fields, found"],
];

for (const [given, says] of REFUSED) {
  Deno.test(`convert metallb says of what it cannot convert: ${says}`, async () => {
    const { code, out, err } = await convert(given);
    assertEquals(code, 1);
    assertStringIncludes(err, says);
    assertEquals(["topsecret", "\x1b"].some((each) => (out + err).includes(each)), false);
  });
}

Deno.test("convert metallb reads the cluster of --kubeconfig, and needs a source", () =>
  withFolder(async (folder) => {
    await using api = await FakeApiServer.start();
    const metadata = { name: "office", namespace: "metallb-system" };
    api.store.create({
      ...{ apiVersion: "metallb.io/v1beta1", kind: "IPAddressPool", metadata },
      spec: { addresses: ["192.0.2.0/28"] },
    });
    api.store.create({
      ...{ apiVersion: "metallb.io/v1beta1", kind: "AddressPool" },
      metadata: { ...metadata, name: "old" },
      spec: { protocol: "layer2", addresses: ["192.0.2.16/28"] },
    });
    const kubeconfig = `${folder}/kubeconfig`;
    await writeKubeconfig(kubeconfig, { server: api.url, ca: api.ca, user: { token: "any" } });
    const { code, out } = await runInProcess(["convert", "metallb", `--kubeconfig=${kubeconfig}`]);
    assertEquals(code, 0);
    assertStringIncludes(out, 'metadata: { name: "office" }');
    assertStringIncludes(out, 'metadata: { name: "old" }');
    const refused = await runInProcess(["convert", "metallb"]);
    assertStringIncludes(refused.err, "name files, - for standard input, or a cluster");
    assertStringIncludes((await runInProcess(["convert", "kube-vip"])).err, "expected metallb");
  }));
