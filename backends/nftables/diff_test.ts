import { assertEquals, assertRejects } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { freshMeaning, NftDiffStage } from "../../tests/support/stages/nft_diff_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { NftError } from "../netfilter/nft/nft_runner.ts";
import { chainElement, chainName, LAYOUT_MARK } from "./chain_spec.ts";

const LIST = "nft --debug=netlink --numeric-protocol list table";

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

Deno.test("the engine fills a chain that an earlier run left before it leads there", async () => {
  const stage = await NftDiffStage.create();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  stage.table.chains.set(name, ["drop"]);
  await stage.resync();
  stage.layout.set(plan(1));
  await stage.sync();
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

/** Has the kernel refuse what is in lines like this. */
function refuse({ machine }: NftDiffStage, bad: RegExp): void {
  machine.judge = (line) => bad.test(line) ? "Invalid argument" : undefined;
}

Deno.test("the engine knows whose element is refused if it is the only one of its map", async () => {
  const stage = await NftDiffStage.create();
  stage.layout.set(plan(1, ["10.1.0.1:80"]));
  refuse(stage, / : 10\.1\./);
  await stage.sync();
  assertEquals(stage.layout.quarantined.map(({ key }) => key), [plan(1).key]);
});

Deno.test("the engine writes a chain that was idle again with a table that can't be read", async () => {
  const stage = await NftDiffStage.create();
  for (const to of [undefined, ["10.1.0.1:80"]]) {
    stage.layout.set(plan(1, to));
    await stage.sync();
  }
  stage.layout.set(plan(1));
  stage.machine.commands.on(LIST, { code: 139 });
  for (let time = 1; time <= 2; time++) await assertRejects(() => stage.resync(), NftError);
  assertEquals([(await stage.resync()).length > 0, stage.table.chains.has("off-cluster-2")], [
    true,
    true,
  ]);
});

Deno.test("the engine replaces no table that it may not read", async () => {
  const stage = await NftDiffStage.create();
  const stderr = "Operation not permitted (you must be root)\n";
  stage.machine.commands.on(LIST, { code: 1, stderr });
  for (let time = 1; time <= 5; time++) await assertRejects(() => stage.resync(), NftError);
});

Deno.test("the table misses no chain that the engine removed or made again itself", async () => {
  const stage = await NftDiffStage.create();
  const { table } = stage.target;
  for (const to of [undefined, ["10.1.0.1:80"], undefined]) {
    stage.layout.set(plan(1, to));
    await stage.sync();
    assertEquals(await table.missingChains(), []);
    await stage.target.tidy({ all: true });
    assertEquals(await table.missingChains(), []);
  }
  const { handles } = stage.machine.tool;
  for (const [chain, handle] of handles) handles.set(chain, handle + 100);
  assertEquals(await table.missingChains(), [...stage.table.chains.keys()]);
});

Deno.test("the engine removes idle chains at once when they are many, and counts a failed removal", async () => {
  const stage = await NftDiffStage.create();
  const idle = () => [...stage.table.chains.keys()].filter((name) => name.startsWith("off-"));
  for (let seconds = 1; seconds <= 257; seconds++) {
    stage.layout.set({ ...plan(1), affinityTimeoutSeconds: seconds });
    await stage.sync();
  }
  assertEquals(idle(), ["off-cluster-2-sticky-257"]);
  stage.layout.set(plan(1));
  await stage.sync();
  stage.machine.commands.failNext({ code: 1, stderr: "Device or resource busy" });
  assertEquals(await stage.target.tidy({ all: true }), false);
  assertEquals([stage.engine.failures, stage.target.table.failedRemovals, idle().length], [
    0,
    1,
    2,
  ]);
});
