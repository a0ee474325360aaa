import { assertEquals } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { freshMeaning, NftDiffStage } from "../../tests/support/stages/nft_diff_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { LAYOUT_MARK } from "./base_chains.ts";
import { chainElement, chainName } from "./chain_spec.ts";
import { CONTAINER_NAMES } from "./containers.ts";
import { NftFigures } from "../netfilter/nft/nft_table.ts";

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

Deno.test("the engine writes nothing if nothing changed", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  await stage.sync();
  stage.layout.set(plan(1));
  assertEquals(await stage.sync(), []);
});

/** The number of the chain for this number of endpoints. */
function number(main: number): string {
  return chainElement(chainName({ front: "vip", treatment: "off-cluster", main })).name;
}

for (const count of [100, 2_000]) {
  Deno.test(`the engine writes as much for a change among ${count} ServicePorts as for any other`, async () => {
    const stage = await NftDiffStage.create();
    for (let number = 0; number < count; number++) stage.layout.set(plan(number));
    await stage.sync();
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
      assertEquals(await stage.sync(), lines, name);
    }
  });
}

Deno.test("the engine moves one endpoint of fifty, not those after it", async () => {
  const stage = await NftDiffStage.create();
  const endpoints = Array.from({ length: 50 }, (_, index) => `10.1.0.${index + 100}:8080`);
  stage.layout.set(plan(1, endpoints));
  await stage.sync();
  const elements = async () => {
    const figures = new NftFigures();
    await stage.sync(figures);
    return figures.elements;
  };
  stage.layout.set(plan(1, ["10.0.0.1:8080", ...endpoints.slice(1)]));
  assertEquals(await elements(), 2);
  stage.layout.set(plan(1, endpoints.slice(1)));
  // The numbers of both chains, the chain that it leads to, the last endpoint, and the endpoint that
  // moves into the gap.
  assertEquals(await elements(), 2 + 2 + 1 + 2);
});

Deno.test("the engine keeps the correct parts of a table that was read", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  stage.layout.set(plan(2));
  await stage.sync();
  stage.table.elements.get("endpoints")?.set("172.30.0.1 . tcp . 80 . 0x80000000", "10.66.0.1 . 1");
  stage.table.elements.get("cluster-ips")?.delete("172.30.0.2");
  stage.table.elements.get("service-ips")?.set("172.30.0.9 . tcp . 80", "0x80000007");
  stage.table.elements.get("affinity")?.set("10.0.0.1 . 172.30.0.1 . tcp . 80", "0x80000001");
  assertEquals((await stage.resync()).filter((line) => line.includes(" element ")), [
    "delete element ip kube-relay service-ips { 172.30.0.9 . tcp . 80 }",
    "delete element ip kube-relay endpoints { 172.30.0.1 . tcp . 80 . 0x80000000 }",
    "add element ip kube-relay endpoints { 172.30.0.1 . tcp . 80 . 0x80000000 : 10.1.0.1 . 8080 }",
    "add element ip kube-relay cluster-ips { 172.30.0.2 }",
  ]);
  assertEquals(stage.table.elements.get("affinity")?.size, 1);
});

Deno.test("the engine rewrites rules that another program changed, and finds nothing more then", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  await stage.sync();
  const verify = async () => (await stage.writer.engine.verify()).map(({ name }) => name);
  assertEquals(await verify(), []);
  stage.table.chains.get("services")?.unshift("drop");
  assertEquals(await verify(), ["services"]);
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
  assertEquals(await verify(), []);
});

Deno.test("the engine fills a chain that an earlier run left before it leads there", async () => {
  const stage = await NftDiffStage.create();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  stage.table.chains.set(name, ["drop"]);
  await stage.resync();
  stage.layout.set(plan(1));
  await stage.sync();
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
});

Deno.test("the engine replaces a table of another version in one go", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  stage.table.chains.set("layout-0", []);
  stage.table.chains.delete(LAYOUT_MARK);
  stage.table.elements.set("old-map", new Map([["1", "drop"]]));
  const lines = await stage.resync();
  assertEquals(lines.slice(1, 3), ["delete table ip kube-relay", "add table ip kube-relay"]);
  assertEquals([...stage.table.elements.keys()], [...CONTAINER_NAMES]);
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
});

Deno.test("the engine replaces a table without its mark as a whole, even if its chains are known", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  await stage.sync();
  for (const mark of ["unmarked", "layout-0"]) {
    stage.table.chains.delete(LAYOUT_MARK);
    stage.table.chains.set(mark, []);
    assertEquals((await stage.resync())[1], "delete table ip kube-relay");
    assertEquals(stage.meaning, freshMeaning([plan(1)]));
  }
});
