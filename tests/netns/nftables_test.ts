/**
 * Tests the nftables backend on a real kernel: the table reaches the wanted state, whatever
 * happens.
 */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { checkTable, createNftStage, nft } from "../support/stages/nft_kernel.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { testServicePlan } from "../support/builders/service_plans.ts";

const test = testNeeding("nftables mode on a real kernel", [
  ...netnsRequirements(),
  program("nft"),
]);

function plan(number: number, to = [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`]) {
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.0.${number}`,
    masqueradeInternal: "off-cluster",
    to,
  });
}

test("rules and elements that another program changes are repaired within seconds, and counted", async () => {
  await using stage = await createNftStage();
  const plans = [plan(1), plan(2)];
  await stage.sync(plans);
  await nft(stage, "flush ruleset");
  await eventually("drift is reported", () => stage.drift.length > 0);
  await checkTable(stage, plans);
  // The first comparison learns how nft prints the rules.
  const verify = async () => {
    const reads = () => stage.calls.filter((call) => call.includes(" list table ")).length;
    const before = reads();
    stage.serving.recheck?.();
    await eventually("the table is read", () => reads() > before);
    await stage.sync(plans);
  };
  await verify();
  stage.drift.length = 0;
  // kube-relay itself removes an unused chain, so this is no drift.
  await stage.sync([plan(1, [1, 2, 3].map((host) => `10.1.0.${host}:8080`)), plan(2)]);
  await stage.sync(plans);
  await verify();
  assertEquals(stage.drift, []);
  assert(!(await nft(stage, "list table ip kube-relay")).includes("off-cluster-3"));
  await nft(stage, "insert rule ip kube-relay services drop");
  await nft(stage, "delete element ip kube-relay cluster-ips { 172.30.0.1 }");
  stage.serving.recheck?.();
  await eventually("drift of both kinds is reported", () => stage.drift.length === 2);
  assertEquals(stage.drift, [
    { kind: "chain", found: 1, repaired: 1 },
    { kind: "rule", found: 1, repaired: 1 },
  ]);
  await checkTable(stage, plans);
  assert(!(await nft(stage, "list chain ip kube-relay services")).includes("drop"));
  // Also a rule that was there before a restart, again and again.
  const foreign = "ip saddr 192.0.2.77 drop";
  const add = () => nft(stage, `add rule ip kube-relay services ${foreign}`);
  const services = () => nft(stage, "list chain ip kube-relay services");
  await add();
  await stage.restart();
  await stage.sync(plans);
  for (const time of ["first", "second", "third"]) {
    await add();
    stage.serving.recheck?.();
    await eventually(
      `the rule is gone for the ${time} time`,
      async () => !(await services()).includes(foreign),
    );
  }
});

test("a restart keeps the table, and a cleanup removes it and no foreign table", async () => {
  await using stage = await createNftStage();
  await nft(stage, "add table ip other");
  await stage.sync([plan(1), plan(2)]);
  const handle = /# handle (\d+)/.exec(await nft(stage, "-a list table ip kube-relay"))?.[1];
  await stage.restart();
  const report = await stage.sync([plan(1), plan(3)]);
  assertEquals([report.full, report.operations["reads"]], [true, 1]);
  await checkTable(stage, [plan(1), plan(3)]);
  assertEquals(
    /# handle (\d+)/.exec(await nft(stage, "-a list table ip kube-relay"))?.[1],
    handle,
  );
  await stage.serving.drain(0);
  const preview = await stage.serving.previewCleanup?.();
  assertEquals(preview?.removed, ["table ip kube-relay (nftables)"]);
  assertEquals((await stage.serving.cleanup()).failed, []);
  assertEquals((await nft(stage, "list tables")).trim(), "table ip other");
  assertEquals((await stage.serving.cleanup()).removed, []);
});
