import { assertEquals } from "@std/assert";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import {
  CONTAINER_NAMES,
  type ContainerName,
  containersOf,
  declarationPrint,
} from "./containers.ts";
import { RawElements } from "./raw_elements.ts";

/** What nft 1.0.6 says of tables that it was given; the elements are a few of each. */
const IPV4: Readonly<Record<string, readonly string[]>> = {
  "numbered-chains": ["86d0b95b  : goto -> to-2 0", "a9a58d8c  : drop 0"],
  "service-ips": ["07030201 00000011 00005000  : bdd83d28 0"],
  "node-ports": ["00000006 00008375  : ca4d86aa 0"],
  "admitted": ["04030201 00000006 00005000  : goto -> masquerade-2 0"],
  "source-ranges": [
    "04030201 00000006 00005000 007100cb  - 04030201 00000006 00005000 7f7100cb  : 0",
    "04030201 00000006 00005000 04030201  - 04030201 00000006 00005000 04030201  : 0",
    "04030201 00000084 00005000 00000000  - 04030201 00000084 00005000 ffffffff  : 0",
  ],
  "endpoints": ["02001eac 00000006 00005000 80000001  : 0201b40a 0000901f 0"],
  "node-port-endpoints": ["00000006 00008275 80000000  : 0301b40a 0000901f 0"],
  "choices": ["01001eac 00000006 00005000 80000002  : b0fa2b19 0"],
  "node-port-choices": ["00000006 00008075 80008001  : cd083aa7 0"],
  "affinity": ["whatever a client has left"],
  "hairpin": ["0200b40a 0200b40a  : 0"],
  "cluster-ips": ["04001eac  : 0"],
  "service-cidrs": ["00001fac  : 1", "00001eac  : 0", "00000000  : 1"],
};
const IPV4_TEXT = [
  "numbered-chains 0x86d0b95b = goto to-2",
  "numbered-chains 0xa9a58d8c = drop",
  "service-ips 1.2.3.7 . udp . 80 = 0xbdd83d28",
  "node-ports tcp . 30083 = 0xca4d86aa",
  "admitted 1.2.3.4 . tcp . 80 = goto masquerade-2",
  "source-ranges 1.2.3.4 . tcp . 80 . 203.0.113.0/25 = ",
  "source-ranges 1.2.3.4 . tcp . 80 . 1.2.3.4 = ",
  "source-ranges 1.2.3.4 . sctp . 80 . 0.0.0.0/0 = ",
  "endpoints 172.30.0.2 . tcp . 80 . 0x80000001 = 10.180.1.2 . 8080",
  "node-port-endpoints tcp . 30082 . 0x80000000 = 10.180.1.3 . 8080",
  "choices 172.30.0.1 . tcp . 80 . 0x80000002 = 0xb0fa2b19",
  "node-port-choices tcp . 30080 . 0x80008001 = 0xcd083aa7",
  "hairpin 10.180.0.2 . 10.180.0.2 = ",
  "cluster-ips 172.30.0.4 = ",
  "service-cidrs 172.30.0.0/16 = ",
];
const IPV6: Readonly<Record<string, readonly string[]>> = {
  "service-ips": ["720100fd 00003000 00000000 02000000 00000006 00005000  : f3bb9af6 0"],
  "endpoints": [
    "720100fd 00003000 00000000 02000000 00000006 00005000 80000000  : " +
    "800100fd 00000000 00000000 02010000 0000901f 0",
  ],
  "hairpin": [
    "800100fd 00000000 00000000 02010000 800100fd 00000000 00000000 02010000  : 0",
  ],
  "cluster-ips": ["720100fd 00003000 00000000 02000000  : 0"],
  "service-cidrs": [
    "720100fd 00003000 00000000 00000100  : 1",
    "720100fd 00003000 00000000 00000000  : 0",
    "00000000 00000000 00000000 00000000  : 1",
  ],
};

/** As nft prints them. */
function declarationsOf(
  names: readonly ContainerName[],
  family: IpFamily = "IPv4",
): ReadonlyMap<string, string> {
  return new Map(names.map((name) => [name, declarationPrint(containersOf(family)[name])]));
}

function read(found: Readonly<Record<string, readonly string[]>>, family: IpFamily = "IPv4") {
  const elements = new RawElements(family, "kube-relay");
  const table = family === "IPv4" ? "ip" : "ip6";
  elements.take(`${table} another @cluster-ips`);
  elements.take("\telement what is of others [end]");
  for (const name of CONTAINER_NAMES) {
    elements.take(`${table} kube-relay @${name}`);
    for (const line of found[name] ?? []) elements.take(`\telement ${line} [end]`);
  }
  elements.take(`${table} kube-relay services 4`);
  elements.take("  [ immediate reg 0 accept ]");
  const read = elements.end(declarationsOf(CONTAINER_NAMES, family));
  return read &&
    [...read].flatMap(([name, values]) =>
      [...values].map(([key, value]) => `${name} ${key} = ${value}`)
    );
}

Deno.test("RawElements has what the text of nft has", () => {
  assertEquals(read(IPV4), IPV4_TEXT);
  assertEquals(read(IPV6, "IPv6"), [
    "service-ips fd00:172:30::2 . tcp . 80 = 0xf3bb9af6",
    "endpoints fd00:172:30::2 . tcp . 80 . 0x80000000 = fd00:180::102 . 8080",
    "hairpin fd00:180::102 . fd00:180::102 = ",
    "cluster-ips fd00:172:30::2 = ",
    "service-cidrs fd00:172:30::/112 = ",
  ]);
  assertEquals(read({}), []);
});

Deno.test("RawElements gives up where an element has another form than it knows", () => {
  const odd: readonly (readonly [string, string])[] = [
    ["cluster-ips", "04001eac 04001eac  : 0"],
    ["cluster-ips", "04001eac  : 1"],
    ["cluster-ips", "04001eac  : 04001eac 0"],
    ["cluster-ips", "04001eac  : 0 userdata = { 74 }"],
    ["cluster-ips", "172.30.0.4"],
    ["cluster-ips", ""],
    ["service-ips", "07030201 00000011 00005000  : 0"],
    ["service-ips", "07030201 00000011  : bdd83d28 0"],
    ["numbered-chains", "86d0b95b  : goto -> 0"],
    ["source-ranges", "04030201 00000006 00005000 007100cb  - 04030201 : 0"],
    ["source-ranges", "04030201 00000006 00005000 0  - 04030202 00000006 00005000 7f7100cb  : 0"],
    [
      "source-ranges",
      "04030201 00000006 00005000 007100cb  - 05030201 00000006 00005000 7f7100cb  : 0",
    ],
    ["service-cidrs", "00001fac  : 2"],
  ];
  for (const [name, line] of odd) {
    assertEquals(read({ [name]: [line] }), undefined, `${name} ${line}`);
  }
});

Deno.test("RawElements gives up where nft says nothing of a set that is there", () => {
  const elements = new RawElements("IPv4", "kube-relay");
  elements.take("ip kube-relay @cluster-ips");
  assertEquals(elements.end(declarationsOf(["cluster-ips"]))?.size, 0);
  assertEquals(elements.end(declarationsOf(["cluster-ips", "hairpin"])), undefined);
  assertEquals(elements.end(new Map([["stranger", "set\ntype mark\n"]])), undefined);
  assertEquals(elements.end(new Map())?.size, 0);
});

Deno.test("RawElements gives up where a set is declared otherwise: no line tells of time-outs and counters", () => {
  const elements = new RawElements("IPv4", "kube-relay");
  elements.take("ip kube-relay @cluster-ips");
  elements.take("\telement 04001eac  : 0 [end]");
  for (const more of ["flags timeout\n", "counter\n", "flags interval\n"]) {
    const declared = new Map([["cluster-ips", `set\ntype ipv4_addr\n${more}`]]);
    assertEquals(elements.end(declared), undefined, more);
  }
  assertEquals(elements.end(declarationsOf(["cluster-ips"]))?.get("cluster-ips")?.size, 1);
});

Deno.test("RawElements begins anew where nft does, since somebody else wrote meanwhile", () => {
  const elements = new RawElements("IPv4", "kube-relay");
  for (const lines of [["04001eac  : 0", "odd"], ["05001eac  : 0"]]) {
    elements.take("ip kube-relay @cluster-ips");
    for (const line of lines) elements.take(`\telement ${line} [end]`);
    elements.take("ip kube-relay @service-cidrs");
    elements.take("\telement 00001eac  : 0 [end]");
  }
  const found = elements.end(declarationsOf(["cluster-ips", "service-cidrs"]));
  assertEquals([...found?.get("cluster-ips")?.keys() ?? []], ["172.30.0.5"]);
  assertEquals([...found?.get("service-cidrs")?.keys() ?? []], [
    "172.30.0.0-255.255.255.255",
  ]);
});

Deno.test("RawElements takes an interval up to the last address, which nft marks for itself", () => {
  const mark = "  userdata = { \\x01\\x04\\x01\\x00\\x00\\x00 }";
  const elements = new RawElements("IPv4", "kube-relay");
  elements.take("ip kube-relay @service-cidrs");
  elements.take(`\telement 00000000  : 0 [end]${mark}`);
  const declared = declarationsOf(["service-cidrs"]);
  assertEquals([...elements.end(declared)?.get("service-cidrs")?.keys() ?? []], ["0.0.0.0/0"]);
  elements.take("\telement 0000000a  : 0 [end]  userdata = { \\x00\\x02x\\x00 }");
  assertEquals(elements.end(declared), undefined);
});
