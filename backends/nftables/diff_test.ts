import { assert, assertEquals } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { freshMeaning, NftDiffStage } from "../../tests/support/stages/nft_diff_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { LAYOUT_MARK } from "./base_chains.ts";
import { chainElement, chainName } from "./chain_spec.ts";
import { CONTAINER_NAMES } from "./containers.ts";
import { diffTable, diffTableInSteps, removeIdleChains } from "./diff.ts";

/** The number-th ServicePort, with two endpoints. */
function plan(number: number, to?: readonly string[]): ServicePlan {
  const [high, low] = [number >> 8, number & 255];
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.${high}.${low}`,
    masqueradeInternal: "off-cluster",
    to: to ?? [`10.1.${high}.${low}:8080`, `10.2.${high}.${low}:8080`],
  });
}

Deno.test("diffTable() writes nothing if nothing changed", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.sync();
  stage.layout.set(plan(1));
  const transaction = stage.sync();
  assertEquals([transaction.isEmpty, transaction.elements], [true, 0]);
});

/** The number of the chain for this number of endpoints. */
function number(main: number): string {
  return chainElement(chainName({ front: "vip", treatment: "off-cluster", main })).key;
}

for (const count of [100, 2_000]) {
  Deno.test(`diffTable() writes as much for a change among ${count} ServicePorts as for any other`, () => {
    const stage = new NftDiffStage();
    for (let number = 0; number < count; number++) stage.layout.set(plan(number));
    stage.sync();
    const changes: readonly [string, () => void, lines: readonly string[]][] = [
      ["an endpoint", () => stage.layout.set(plan(7, ["10.1.0.7:8080", "10.9.0.7:8080"])), [
        "delete element ip kube-relay endpoints { 172.30.0.7 . tcp . 80 . 0x80000001 }",
        "add element ip kube-relay endpoints { 172.30.0.7 . tcp . 80 . 0x80000001 : 10.9.0.7 . 8080 }",
      ]],
      [
        "an endpoint more",
        () => stage.layout.set(plan(7, ["10.0.0.7:8080", "10.1.0.7:8080", "10.9.0.7:8080"])),
        [
          "add chain ip kube-relay off-cluster-3",
          "flush chain ip kube-relay off-cluster-3",
          "delete element ip kube-relay service-ips { 172.30.0.7 . tcp . 80 }",
          "add rule ip kube-relay off-cluster-3 ip saddr != 10.0.0.0/8 meta mark set meta mark or 0x4000",
          "add rule ip kube-relay off-cluster-3 meta priority set numgen random mod 3 offset " +
          "2147483648 dnat ip addr . port to ip daddr . meta l4proto . th dport . meta priority " +
          "map @endpoints",
          `add element ip kube-relay numbered-chains { ${number(3)} : goto off-cluster-3 }`,
          `add element ip kube-relay service-ips { 172.30.0.7 . tcp . 80 : ${number(3)} }`,
          "add element ip kube-relay endpoints { 172.30.0.7 . tcp . 80 . 0x80000002 : 10.0.0.7 . 8080 }",
        ],
      ],
      ["a ServicePort less", () => stage.layout.delete(plan(9).key), [
        "delete element ip kube-relay service-ips { 172.30.0.9 . tcp . 80 }",
        "delete element ip kube-relay endpoints {",
        "  172.30.0.9 . tcp . 80 . 0x80000000,",
        "  172.30.0.9 . tcp . 80 . 0x80000001",
        "}",
        "delete element ip kube-relay cluster-ips { 172.30.0.9 }",
      ]],
    ];
    for (const [name, change, lines] of changes) {
      change();
      assertEquals(stage.sync().toLines(), lines, name);
    }
  });
}

Deno.test("diffTable() moves one endpoint of fifty, not those after it", () => {
  const stage = new NftDiffStage();
  const endpoints = Array.from({ length: 50 }, (_, index) => `10.1.0.${index + 100}:8080`);
  stage.layout.set(plan(1, endpoints));
  stage.sync();
  stage.layout.set(plan(1, ["10.0.0.1:8080", ...endpoints.slice(1)]));
  assertEquals(stage.sync().elements, 2);
  stage.layout.set(plan(1, endpoints.slice(1)));
  // The number of another chain, that chain, the last endpoint, and the endpoint that moves into
  // the gap.
  assertEquals(stage.sync().elements, 2 + 1 + 1 + 2);
});

Deno.test("diffTable() knows the owner of a refused line", () => {
  const stage = new NftDiffStage();
  for (const number of [1, 2]) stage.layout.set(plan(number));
  const { transaction } = diffTable(stage.layout, stage.applied);
  const line =
    transaction.toLines().indexOf("  172.30.0.2 . tcp . 80 . 0x80000001 : 10.2.0.2 . 8080") +
    1;
  assertEquals(transaction.ownerOf(line), plan(2).key);
  assertEquals(transaction.ownerOf(1), undefined);
});

Deno.test("diffTable() keeps the correct parts of a table that was read", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.layout.set(plan(2));
  stage.sync();
  stage.table.elements.get("endpoints")?.set("172.30.0.1 . tcp . 80 . 0x80000000", "10.66.0.1 . 1");
  stage.table.elements.get("cluster-ips")?.delete("172.30.0.2");
  stage.table.elements.get("service-ips")?.set("172.30.0.9 . tcp . 80", "0x80000007");
  stage.table.elements.get("affinity")?.set("10.0.0.1 . 172.30.0.1 . tcp . 80", "0x80000001");
  stage.applied.adopt(stage.reading());
  assertEquals(stage.sync().toLines().filter((line) => line.includes(" element ")), [
    "delete element ip kube-relay service-ips { 172.30.0.9 . tcp . 80 }",
    "delete element ip kube-relay endpoints { 172.30.0.1 . tcp . 80 . 0x80000000 }",
    "add element ip kube-relay endpoints { 172.30.0.1 . tcp . 80 . 0x80000000 : 10.1.0.1 . 8080 }",
    "add element ip kube-relay cluster-ips { 172.30.0.2 }",
  ]);
  assertEquals(stage.table.elements.get("affinity")?.size, 1);
});

Deno.test("diffTable() rewrites rules that another program changed, and finds nothing more then", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.sync();
  const verify = () => {
    stage.applied.adopt(stage.reading());
    const changed = stage.applied.changedObjects;
    return [
      changed,
      stage.sync().toLines().filter((line) => line.startsWith("add rule")).length > 0,
    ];
  };
  verify();
  assertEquals([verify(), verify()], [[0, false], [0, false]]);
  stage.table.chains.get("services")?.unshift("drop");
  assertEquals(verify(), [1, true]);
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
  verify();
  assertEquals(verify(), [0, false]);
});

Deno.test("diffTable() fills a chain that an earlier run left before it leads there", () => {
  const stage = new NftDiffStage();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  stage.table.chains.set(name, ["drop"]);
  stage.applied.adopt(stage.reading());
  stage.sync();
  stage.layout.set(plan(1));
  stage.sync();
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
});

Deno.test("diffTable() replaces a table of another version in one go", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.table.chains.set("layout-0", []);
  stage.table.chains.delete(LAYOUT_MARK);
  stage.table.elements.set("old-map", new Map([["1", "drop"]]));
  stage.applied.adopt(stage.reading());
  const lines = stage.sync().toLines();
  assertEquals(lines.slice(1, 3), ["delete table ip kube-relay", "add table ip kube-relay"]);
  assertEquals([...stage.table.elements.keys()], [...CONTAINER_NAMES]);
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
});

Deno.test("diffTable() replaces a table without its mark as a whole, even if its chains are known", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.sync();
  for (const mark of [LAYOUT_MARK, "layout-0"]) {
    // The first reading learns how rules are printed, the second one knows them.
    for (let times = 0; times < 2; times++) {
      stage.applied.adopt(stage.reading());
      stage.sync();
    }
    stage.table.chains.delete(LAYOUT_MARK);
    stage.table.chains.set(mark === LAYOUT_MARK ? "unmarked" : mark, []);
    stage.applied.adopt(stage.reading());
    assertEquals(stage.sync().toLines()[1], "delete table ip kube-relay");
    assertEquals(stage.meaning, freshMeaning([plan(1)]));
  }
});

Deno.test("removeIdleChains() removes unreferenced chains, and nothing else", () => {
  const stage = new NftDiffStage();
  stage.layout.set(plan(1));
  stage.sync();
  stage.layout.set(plan(1, ["10.1.0.1:8080"]));
  stage.sync();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  assert(stage.table.chains.has(name));
  stage.take(removeIdleChains(stage.layout, stage.applied));
  assertEquals(stage.table.elements.get("numbered-chains")?.has(chainElement(name).key), false);
  stage.take(removeIdleChains(stage.layout, stage.applied));
  assertEquals(stage.table.chains.has(name), false);
  assertEquals(removeIdleChains(stage.layout, stage.applied).transaction.isEmpty, true);
  assertEquals(stage.meaning, freshMeaning([plan(1, ["10.1.0.1:8080"])]));
});

Deno.test("diffTableInSteps() pauses after a few entries, or one with many endpoints", () => {
  const many = Array.from({ length: 100 }, (_, index) => `10.1.0.${index + 1}:8080`);
  for (const endpoints of [[], many]) {
    const stage = new NftDiffStage();
    for (let number = 1; number <= 1_000; number++) stage.layout.set(plan(number, endpoints));
    const steps = [...diffTableInSteps(stage.layout, stage.applied)].length;
    const least = endpoints.length > 0 ? 1_000 : stage.layout.dirty.size / 64;
    assert(steps >= least, `${steps} steps with ${endpoints.length} endpoints each`);
  }
});
