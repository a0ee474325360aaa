import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../../../tests/support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../../../tests/support/builders/builders.ts";
import { planScenario } from "../../../tests/packet_flow/plan_scenario.ts";
import type { PacketFlowSettings } from "../../../tests/packet_flow/packet_flow_case.ts";
import type { Service } from "../../api/kinds/service.ts";
import { ConfigurationError } from "../../config/configuration_error.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { PacketEndsError, type PacketScope, readPacketEnds } from "./packet_ends.ts";

const { IPv4, IPv6 } = ADDRESSES;

const SERVICES: readonly Service[] = [
  testService("web", {
    type: "NodePort",
    clusterIPs: [IPv4.clusterIp, IPv6.clusterIp],
    ipFamilies: ["IPv4", "IPv6"],
    externalIPs: [IPv4.externalIp],
    ports: [
      { name: "http", port: 80, nodePort: 30080 },
      { name: "dns", port: 53, protocol: "UDP", nodePort: 30080 },
    ],
  }),
  testService("old", { clusterIP: "172.30.0.42" }),
  testService("headless", { clusterIP: "None" }),
  testService("alias", { type: "ExternalName", clusterIP: "" }),
  testService("foreign", { clusterIP: "172.30.0.43" }, {
    metadata: { labels: { "service.kubernetes.io/service-proxy-name": "other" } },
  }),
  testService("portless", { clusterIP: "172.30.0.44", ports: [] }),
  testService("evil-name\x1b[", { clusterIP: "None" }),
];

function world(settings: PacketFlowSettings = {}): PacketScope {
  const slices = [testEndpointSlice("web", {
    endpoints: [
      { addresses: [IPv4.localPods[0]], nodeName: THIS_NODE },
      { addresses: [IPv4.remotePods[0]], nodeName: OTHER_NODE },
    ],
    ports: [{ name: "http", port: 8080 }],
  })];
  const scenario = { name: "ends", services: SERVICES, slices, settings };
  return {
    plans: new Map(IP_FAMILIES.map((family) => [family, planScenario(scenario, family)])),
    nodeAddresses: [IPv4.node, IPv4.nodeSecond, IPv6.node],
    services: () => SERVICES,
  };
}

const WORLD = world();
const NS = SERVICES[0]!.metadata.namespace;

/** `kind address → address port protocol` of each packet. */
function texts(from: string, to: string, of = WORLD): readonly string[] {
  return readPacketEnds({ from, to }, of).packets.map(({ from, to, port, protocol }) => {
    const by = from.interfaceName === undefined ? "" : ` by ${from.interfaceName}`;
    return `${from.kind} ${from.address}${by} -> ${to} ${port} ${protocol}`;
  });
}

const POD = `pod ${IPv4.localPodClient}`;
const ROWS: readonly (readonly [from: string, to: string, expected: readonly string[]])[] = [
  [IPv4.localPodClient, "172.30.0.41:80", [`${POD} -> 172.30.0.41 80 TCP`]],
  [`${NS}/${IPv4.localPodClient}`, "172.30.0.41:53/udp", [`${POD} -> 172.30.0.41 53 UDP`]],
  [`${IPv4.client}@eth0`, "172.30.0.9:80", [
    `outside ${IPv4.client} by eth0 -> 172.30.0.9 80 TCP`,
  ]],
  [IPv4.client, `${NS}/web:http`, [`outside ${IPv4.client} -> 172.30.0.41 80 TCP`]],
  [IPv4.client, `${NS}/web:53`, [`outside ${IPv4.client} -> 172.30.0.41 53 UDP`]],
  [IPv4.client, `${NS}/web:80/tcp`, [`outside ${IPv4.client} -> 172.30.0.41 80 TCP`]],
  [IPv4.client, `${NS}/web`, [
    `outside ${IPv4.client} -> 172.30.0.41 80 TCP`,
    `outside ${IPv4.client} -> 172.30.0.41 53 UDP`,
  ]],
  [IPv4.client, IPv4.externalIp, [
    `outside ${IPv4.client} -> ${IPv4.externalIp} 80 TCP`,
    `outside ${IPv4.client} -> ${IPv4.externalIp} 53 UDP`,
  ]],
  ["node", `${NS}/web:http`, [
    `node ${IPv4.node} -> 172.30.0.41 80 TCP`,
    `node ${IPv6.node} -> ${IPv6.clusterIp} 80 TCP`,
  ]],
  ["outside", "172.30.0.41:80", ["outside 192.0.2.1 -> 172.30.0.41 80 TCP"]],
  ["outside", `[${IPv6.clusterIp}]:80`, [
    `outside 2001:db8::1 -> ${IPv6.clusterIp} 80 TCP`,
  ]],
  [IPv4.nodeSecond, "172.30.0.41:80", [`node ${IPv4.nodeSecond} -> 172.30.0.41 80 TCP`]],
  [IPv4.client, "node:30080", [
    `outside ${IPv4.client} -> ${IPv4.node} 30080 TCP`,
    `outside ${IPv4.client} -> ${IPv4.node} 30080 UDP`,
  ]],
  [IPv4.client, "node:30081/udp", [`outside ${IPv4.client} -> ${IPv4.node} 30081 UDP`]],
  ["node", "127.0.0.1:30080", ["node 127.0.0.1 -> 127.0.0.1 30080 TCP"]],
  ["node", "127.80.0.1:80", ["node 127.0.0.1 -> 127.80.0.1 80 TCP"]],
  ["127.0.0.2", "127.80.0.1:80", ["node 127.0.0.2 -> 127.80.0.1 80 TCP"]],
  [`[${IPv6.client}]`, IPv6.clusterIp, [
    `outside ${IPv6.client} -> ${IPv6.clusterIp} 80 TCP`,
    `outside ${IPv6.client} -> ${IPv6.clusterIp} 53 UDP`,
  ]],
];

Deno.test("readPacketEnds() reads each form of both ends", () => {
  for (const [from, to, expected] of ROWS) assertEquals(texts(from, to), expected);
});

const BRIDGED = world({ localTraffic: { kind: "byBridge", interfaceName: "cni0" } });

for (
  const [from, expected, assumed] of [
    [IPv4.localPods[0], `pod ${IPv4.localPods[0]} by cni0`, false],
    [IPv4.remotePods[0], `pod ${IPv4.remotePods[0]}`, false],
    [`ns/${IPv4.localPodClient}`, `${POD} by cni0`, true],
    [`ns/${IPv4.localPodClient}@eth0`, `${POD} by eth0`, false],
    [IPv4.client, `outside ${IPv4.client}`, true],
  ] as const
) {
  Deno.test(`readPacketEnds() finds the interface of ${from} if pods are known by their interface`, () => {
    assertEquals(texts(from, "172.30.0.41:80", BRIDGED), [`${expected} -> 172.30.0.41 80 TCP`]);
    const { assumptions } = readPacketEnds({ from, to: "172.30.0.41:80" }, BRIDGED);
    assertEquals(assumptions.length > 0, assumed, assumptions.join());
  });
}

const WRONG_USE: readonly (readonly [from: string, to: string, says: string])[] = [
  ["", "172.30.0.41:80", "expected an address"],
  ["here", "172.30.0.41:80", "expected an address"],
  ["10.0.0.1:4444", "172.30.0.41:80", "leave it out"],
  ["[fd00::1]:4444", "172.30.0.41:80", "leave it out"],
  [
    "default/web-0",
    "172.30.0.41:80",
    "pods are known by name only if NetworkPolicies are enforced",
  ],
  ["10.0.0.1@a/b", "172.30.0.41:80", "no interface can be called 'a/b'"],
  ["node", "", "expected ADDRESS:PORT"],
  ["node", "web", "expected ADDRESS:PORT"],
  ["node", "node", "name a node port"],
  ["node", "node:http", "'http' is not a port"],
  ["node", "172.30.0.41:0", "'0' is not a port"],
  ["node", "172.30.0.41:80/ICMP", "none of the protocols TCP, UDP, SCTP"],
  ["node", "ns/web:80/ICMP", "none of the protocols TCP, UDP, SCTP"],
  ["node", "ns/10.0.0.1:80", "give only the address, as in 10.0.0.1:80"],
];

for (const [from, to, says] of WRONG_USE) {
  Deno.test(`readPacketEnds() refuses '${from}' to '${to}'`, () => {
    assertThrows(() => texts(from, to), ConfigurationError, says);
  });
}

const NOT_THERE: readonly (readonly [from: string, to: string, says: string])[] = [
  ["node", `${NS}/wbe`, `did you mean '${NS}/web'?`],
  ["node", `${NS}/headless`, "it is headless; DNS gives its clients"],
  ["node", `${NS}/alias`, "it is an ExternalName"],
  ["node", `${NS}/foreign`, "another proxy serves it"],
  ["node", `${NS}/portless`, "no cluster IP of IPv4 or IPv6, or no port"],
  ["node", `${NS}/web:8080`, "it has http 80/TCP, dns 53/UDP"],
  ["node", `${NS}/web:dns/TCP`, "Cannot find port 'dns' of TCP"],
  [IPv6.client, `${NS}/old`, "it has no IPv6 address"],
  [IPv6.client, "172.30.0.41:80", "both ends of a packet are of one IP family"],
  ["node", "172.30.0.99", "name a port, as in 172.30.0.99:80"],
  ["node", `${NS}/evil-name`, "did you mean"],
];

for (const [from, to, says] of NOT_THERE) {
  Deno.test(`readPacketEnds() gives the obstacle of '${from}' to '${to}'`, () => {
    const error = assertThrows(() => texts(from, to), PacketEndsError, says);
    // deno-lint-ignore no-control-regex
    assert(!/[\x00-\x1f]/.test(error.message), JSON.stringify(error.message));
  });
}

Deno.test("readPacketEnds() reports that it does not know the node", () => {
  const unknown = { ...WORLD, nodeAddresses: [] };
  assertThrows(() => texts("node", "172.30.0.41:80", unknown), PacketEndsError, "no IPv4 address");
});

Deno.test("readPacketEnds() answers any two texts with packets or with an error of its own", () => {
  const word = fc.constantFrom(
    ...["node", "outside", NS ?? "", "web", "http", "80", "30080", "udp", "TCP", "10.0.0.1", "::1"],
    ...["172.30.0.41", "fd00:172:30::41", "[", "]", ":", "/", "@", "eth0", "\x1b", "\n", " ", "%"],
  );
  const text = fc.oneof(
    fc.string({ unit: "binary", maxLength: 30 }),
    fc.array(word, { maxLength: 7 }).map((words) => words.join("")),
  );
  let answered = 0;
  fc.assert(
    fc.property(text, text, (from, to) => {
      try {
        const { packets } = readPacketEnds({ from, to }, WORLD);
        assert(packets.length > 0);
        answered++;
      } catch (error) {
        assert(error instanceof ConfigurationError || error instanceof PacketEndsError, `${error}`);
        // deno-lint-ignore no-control-regex
        assert(!/[\x00-\x1f\x7f-\x9f]/.test(error.message), JSON.stringify(error.message));
      }
    }),
    { numRuns: 3_000, examples: [["node", `${NS}/web`]] },
  );
  assert(answered > 0);
});
