import { assert, assertEquals, assertThrows } from "@std/assert";
import { FakeNft } from "../../../tests/support/fakes/fake_nft.ts";
import { atOnce } from "../in_steps.ts";
import type { NftElement, NftTableSpec } from "./nft_objects.ts";
import { type NftChanges, NftTransaction } from "./nft_transaction.ts";

type Name = "numbered-chains" | "cluster-ips";
type Changes = NftChanges<"ns/web/TCP", Name>;

const OWNER = "ns/web/TCP" as const;
const TABLE: NftTableSpec<Name> = {
  family: "ip",
  name: "kube-relay",
  containers: new Map([
    ["numbered-chains", { kind: "map", declaration: "type classid : verdict" }],
    ["cluster-ips", { kind: "set", declaration: "type ipv4_addr ; flags interval" }],
  ]),
};

/** The transaction of these changes, and how many pauses it takes. */
function made(changes: Changes, table = TABLE) {
  const steps = NftTransaction.steps(table, changes);
  for (let pauses = 0;; pauses++) {
    const { done, value } = steps.next();
    if (done) return { transaction: value, pauses };
  }
}

function owned(...elements: readonly NftElement<Name>[]) {
  return elements.map((element) => ({ element, owner: OWNER } as const));
}

Deno.test("NftTransaction writes each kind in the order that the kernel requires", () => {
  const { transaction } = made({
    chains: [{ name: "services", rules: ["goto last"] }, {
      name: "last",
      hook: "type nat hook output priority -100",
      rules: ["drop"],
    }],
    removed: new Map([["cluster-ips", owned({ container: "cluster-ips", key: "172.30.0.1" })]]),
    added: new Map([[
      "numbered-chains",
      owned(
        { container: "numbered-chains", key: "0x80000001", value: "goto last" },
        { container: "numbered-chains", key: "0x80000002", value: "drop" },
      ),
    ]]),
    removedChains: ["old", "older"],
  });
  assertEquals(transaction.toLines(), [
    "add chain ip kube-relay services",
    "flush chain ip kube-relay services",
    "add chain ip kube-relay last { type nat hook output priority -100 ; policy accept ; }",
    "flush chain ip kube-relay last",
    "delete element ip kube-relay cluster-ips { 172.30.0.1 }",
    "add rule ip kube-relay services goto last",
    "add rule ip kube-relay last drop",
    "add element ip kube-relay numbered-chains {",
    "  0x80000001 : goto last,",
    "  0x80000002 : drop",
    "}",
    "flush chain ip kube-relay old",
    "flush chain ip kube-relay older",
    "delete chain ip kube-relay old",
    "delete chain ip kube-relay older",
  ]);
  assertEquals([transaction.elements, transaction.isEmpty], [3, false]);
});

Deno.test("NftTransaction deletes by the key alone, and knows the owner of each line", () => {
  const element: NftElement<Name> = {
    container: "numbered-chains",
    key: "0x80000001",
    value: "drop",
  };
  const { transaction } = made({
    removed: new Map([["numbered-chains", owned(element)]]),
    added: new Map([["numbered-chains", [{ element, owner: undefined }]]]),
  });
  assertEquals(transaction.toLines(), [
    "delete element ip kube-relay numbered-chains { 0x80000001 }",
    "add element ip kube-relay numbered-chains { 0x80000001 : drop }",
  ]);
  const owners = transaction.toLines().map((_, index) => transaction.ownerOf(index + 1));
  assertEquals(owners, [OWNER, undefined]);
});

Deno.test("NftTransaction replaces a table, and declares its sets and maps", () => {
  const { transaction } = made({ replacesTable: true, declared: TABLE.containers.keys() }, {
    ...TABLE,
    family: "ip6",
  });
  assertEquals(transaction.toLines(), [
    "add table ip6 kube-relay",
    "delete table ip6 kube-relay",
    "add table ip6 kube-relay",
    "add map ip6 kube-relay numbered-chains { type classid : verdict ; }",
    "add set ip6 kube-relay cluster-ips { type ipv4_addr ; flags interval ; }",
  ]);
});

Deno.test("NftTransaction knows the owner of a chain's lines, and of no other ones", () => {
  const chains = [{ name: "web", owner: OWNER, rules: ["drop"] }, { name: "all", rules: ["drop"] }];
  const { transaction } = made({ declared: ["cluster-ips"], emptied: ["cluster-ips"], chains });
  const owners = transaction.toLines().map((line, index) => [line, transaction.ownerOf(index + 1)]);
  assertEquals(owners, [
    ["add table ip kube-relay", undefined],
    ["add set ip kube-relay cluster-ips { type ipv4_addr ; flags interval ; }", undefined],
    ["add chain ip kube-relay web", OWNER],
    ["flush chain ip kube-relay web", OWNER],
    ["add chain ip kube-relay all", undefined],
    ["flush chain ip kube-relay all", undefined],
    ["flush set ip kube-relay cluster-ips", undefined],
    ["add rule ip kube-relay web drop", OWNER],
    ["add rule ip kube-relay all drop", undefined],
  ]);
});

Deno.test("NftTransaction refuses a set or map that the table does not have", () => {
  const containers: NftTableSpec<Name>["containers"] = new Map();
  const added = new Map([["cluster-ips" as const, []]]);
  for (const changes of [{ added }, { removed: added }, { declared: added.keys() }]) {
    assertThrows(() => made(changes, { ...TABLE, containers }), Error, "no such set");
  }
});

Deno.test("NftTransaction is empty if nothing changes", () => {
  const { transaction } = made({});
  assertEquals([transaction.isEmpty, [...transaction.text()]], [true, []]);
});

Deno.test("NftTransaction of many elements is made with pauses, and given in pieces", () => {
  const elements = Array.from({ length: 10_000 }, (_, index): NftElement<Name> => ({
    container: "cluster-ips",
    key: `172.30.${index >> 8}.${index & 255}`,
  }));
  const { transaction, pauses } = made({ added: new Map([["cluster-ips", owned(...elements)]]) });
  assertEquals(pauses, 5);
  const pieces = [...transaction.text()];
  assertEquals(pieces.join(""), transaction.toLines().map((line) => `${line}\n`).join(""));
  assert(pieces.length > 1 && pieces.every((piece) => piece.length < 70_000));
});

Deno.test("NftTransaction brings the table of another user from one state to the next", () => {
  type Policy = "pods" | "from-a" | "ports";
  const table: NftTableSpec<Policy> = {
    family: "ip",
    name: "kube-relay-policy",
    containers: new Map([
      ["pods", { kind: "map", declaration: "type ipv4_addr : verdict" }],
      ["from-a", { kind: "set", declaration: "type ipv4_addr ; flags interval" }],
      ["ports", { kind: "set", declaration: "type ipv4_addr . inet_proto . inet_service" }],
    ]),
  };
  const nft = new FakeNft();
  const apply = (changes: NftChanges<string, Policy>) =>
    nft.run([...atOnce(NftTransaction.steps(table, changes)).text()].join(""));
  const pod = (key: string, value: string) => ({
    element: { container: "pods", key, value },
    owner: "ns/a",
  } as const);
  apply({
    declared: table.containers.keys(),
    chains: [
      { name: "forward", hook: "type filter hook forward priority 0", rules: ["jump pods"] },
      { name: "pods", rules: ["ip daddr vmap @pods"] },
      { name: "pod-a", owner: "ns/a", rules: ["ip saddr @from-a accept", "drop"] },
    ],
    added: new Map([["pods", [pod("10.0.0.1", "goto pod-a")]]]),
  });
  apply({
    chains: [{ name: "pod-b", owner: "ns/b", rules: ["drop"] }],
    removed: new Map([["pods", [pod("10.0.0.1", "goto pod-a")]]]),
    added: new Map([["pods", [pod("10.0.0.2", "goto pod-b")]]]),
    removedChains: ["pod-a"],
  });
  const { chains, elements } = nft.table("ip kube-relay-policy");
  assertEquals([...chains.keys()], ["forward", "pods", "pod-b"]);
  assertEquals([...elements.get("pods") ?? []], [["10.0.0.2", "goto pod-b"]]);
});
