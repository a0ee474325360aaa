import { assertEquals, assertRejects } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { freshMeaning, NftDiffStage } from "../../tests/support/stages/nft_diff_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { chainElement, chainName, LAYOUT_MARK } from "./chain_spec.ts";
import { servicesTable } from "./containers.ts";

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
    await stage.sync();
    return stage.figures.elements;
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
  assertEquals(await stage.verify(), []);
  stage.table.chains.get("services")?.unshift("drop");
  assertEquals(await stage.verify(), ["services"]);
  assertEquals(stage.meaning, freshMeaning([plan(1)]));
  assertEquals(await stage.verify(), []);
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
  assertEquals([...stage.table.elements.keys()], [...servicesTable("IPv4").containers.keys()]);
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

const web = (to: readonly string[], more = {}) =>
  testServicePlan({ ...more, nodePort: 30_080, to });

Deno.test("a check leaves endpoints the numbers that they were given when they came", async () => {
  for (const more of [{}, { affinityTimeoutSeconds: 60 }]) {
    const stage = await NftDiffStage.create();
    stage.layout.set(web(["10.0.0.2:80"], more));
    await stage.sync();
    // The first one in the order of the plan comes last, and gets the last number.
    stage.layout.set(web(["10.0.0.1:80", "10.0.0.2:80"], more));
    await stage.sync();
    const check = async () => {
      assertEquals(await stage.verify(), []);
      assertEquals([stage.figures.reads, stage.figures.elements], [1, 0]);
    };
    await check();
    // Nor does a second check, nor a change after it, move an endpoint that stays.
    await check();
    stage.layout.set(web(["10.0.0.2:80"], more));
    await stage.sync();
    await check();
  }
});

Deno.test("a check reads again if the kernel repeats elements in place of others, and if a listing lacks rules", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1));
  stage.layout.set(plan(2));
  await stage.sync();
  for (const tornListings of [1, 3]) {
    stage.machine.tornListings = tornListings;
    assertEquals([await stage.verify(), stage.figures.elements], [[], 0]);
    assertEquals(stage.machine.tornListings, 0);
  }
  // The first listing of new chains is the print that later ones are compared with.
  for (const cutListings of [1, 0, 0, 1, 0]) {
    stage.machine.cutListings = cutListings;
    assertEquals([await stage.verify(), stage.figures.elements], [[], 0]);
  }
});

Deno.test("a check removes rules that another program adds before and after a start", async () => {
  const { machine, layout, table } = await NftDiffStage.create();
  const right = [...table.chains.get("services") ?? []];
  const add = () => machine.tool.run("add rule ip kube-relay services ip saddr 10.0.0.1 drop\n");
  add();
  const stage = await NftDiffStage.create(machine, layout);
  for (let time = 1; time <= 4; time++) {
    add();
    assertEquals(await stage.verify(), ["services"]);
    assertEquals(stage.table.chains.get("services"), right);
  }
});

Deno.test("a check ignores chains that nothing leads to, and removes them", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(web(["10.0.0.1:80", "10.0.0.2:80"]));
  await stage.sync();
  stage.layout.set(web(["10.0.0.1:80"]));
  await stage.sync();
  const idle = () => [...stage.table.chains.keys()].filter((name) => name.endsWith("to-2"));
  assertEquals([await stage.verify(), stage.figures.elements, idle()], [[], 0, []]);
  stage.machine.tool.run("delete element ip kube-relay cluster-ips {\n  127.96.0.1\n}\n");
  assertEquals([await stage.verify(), stage.figures.elements], [["127.96.0.1"], 1]);
});

Deno.test("the numbers of endpoints are kept after a write that failed, and after a restart", async () => {
  const stage = await NftDiffStage.create();
  const change = async (...to: readonly string[]) => {
    stage.layout.set(testServicePlan({ to }));
    await stage.sync();
  };
  await change("10.0.0.2:80");
  await change("10.0.0.1:80", "10.0.0.2:80");
  stage.machine.commands.failNext("timeout");
  const all = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];
  await assertRejects(() => change(...all), NftError);
  const targets = () => [...stage.table.elements.get("endpoints")!.values()];
  const wanted = ["10.0.0.2 . 80", "10.0.0.1 . 80", "10.0.0.3 . 80"];
  await change(...all);
  assertEquals(targets(), wanted);
  const restarted = await NftDiffStage.create(stage.machine, stage.layout);
  assertEquals(restarted.figures.elements, 0);
  assertEquals(targets(), wanted);
});
