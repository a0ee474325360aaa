import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { nftablesPlan, NftablesStage } from "../../tests/support/stages/nftables_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { removeOwnTable } from "./own_table.ts";

const OURS = "table ip kube-relay (nftables)";
const REMOVAL = { family: "IPv4", dryRun: false } as const;

/** A machine that serves a Service, on which others have tables too. */
async function served(): Promise<NftablesStage> {
  const stage = new NftablesStage();
  for (const table of ["ip theirs", "ip6 kube-relay"]) {
    stage.machine.tool.run(`add table ${table}\nadd chain ${table} foreign\n`);
  }
  await stage.backend.start();
  await stage.sync(nftablesPlan([testServicePlan({ to: ["10.0.0.1:80"] })]));
  return stage;
}

Deno.test("removeOwnTable() takes our table away and no other one, after a process that is gone too", async () => {
  for (const isGone of [false, true]) {
    await using stage = await served();
    if (isGone) await stage.restart();
    assertEquals(await stage.backend.cleanup(), { removed: [OURS], failed: [] });
    assertEquals(stage.machine.tool.tables, ["ip theirs", "ip6 kube-relay"]);
    assertEquals(await stage.backend.cleanup(), { removed: [], failed: [] }, "nothing is left");
  }
});

Deno.test("removeOwnTable() only tells, when it is asked what it would do", async () => {
  await using stage = await served();
  const { removed, commands } = await stage.backend.previewCleanup!();
  assertEquals(removed, [OURS]);
  assertEquals(commands, [
    "nft -f - <<'EOF'\nadd table ip kube-relay\ndelete table ip kube-relay\nEOF\n",
  ]);
  assert(stage.machine.tool.tables.includes("ip kube-relay"));
});

Deno.test("removeOwnTable() takes the table of the family that it is asked for", async () => {
  const machine = new FakeNftMachine();
  for (const family of ["ip", "ip6"]) {
    machine.tool.run(`add table ${family} kube-relay\nadd chain ${family} kube-relay services\n`);
  }
  await removeOwnTable(machine, { ...REMOVAL, family: "IPv6" });
  assertEquals(machine.tool.tables, ["ip kube-relay"]);
});

Deno.test("removeOwnTable() has nothing to say where there is no nft", async () => {
  const commands = new FakeCommandRunner().failCall(1, "not-found");
  assertEquals((await removeOwnTable({ commands }, REMOVAL)).removed, []);
  const missing = new FakeCommandRunner().on("nft", { code: 127, stderr: "nft: not found" });
  assertEquals(await removeOwnTable({ commands: missing }, REMOVAL), { removed: [], failed: [] });
});

Deno.test("removeOwnTable() keeps for root what a plain user may not look at", async () => {
  const stderr = "Operation not permitted (you must be root)\n";
  const commands = new FakeCommandRunner().on("nft --handle list chains", { code: 1, stderr });
  const { failed, kept } = await removeOwnTable({ commands }, REMOVAL);
  assertEquals([failed, kept?.length], [[], 1]);
  assertStringIncludes(kept?.[0] ?? "", "table ip kube-relay: not checked, which needs root");
});

Deno.test("removeOwnTable() tells what it can't look at or remove", async () => {
  const hung = new FakeCommandRunner().failCall(1, "timeout");
  assertEquals((await removeOwnTable({ commands: hung }, REMOVAL)).failed.length, 1);
  await using stage = await served();
  stage.machine.judge = (line) => line.startsWith("delete table") ? "Device busy" : undefined;
  const { failed, removed } = await stage.backend.cleanup();
  assertEquals([failed.length, removed], [1, []]);
  assertStringIncludes(failed[0] ?? "", "table ip kube-relay: ");
  assertStringIncludes(failed[0] ?? "", "Device busy");
  assert(stage.machine.tool.tables.includes("ip kube-relay"));
});

Deno.test("removeOwnTable() takes the table that counts away too, whether the other is there or not", async () => {
  const counts = "table ip kube-relay-counters (nftables)";
  for (const others of [[], ["ip kube-relay"]]) {
    const machine = new FakeNftMachine();
    for (const table of [...others, "ip kube-relay-counters", "ip6 kube-relay-counters"]) {
      machine.tool.run(`add table ${table}\nadd chain ${table} count\n`);
    }
    const { removed } = await removeOwnTable(machine, REMOVAL);
    assertEquals(removed, [...(others.length > 0 ? [OURS] : []), counts]);
    assertEquals(machine.tool.tables, ["ip6 kube-relay-counters"]);
  }
});
