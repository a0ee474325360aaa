import { assert, assertEquals } from "@std/assert";
import { SyncFailure } from "../../lib/engine/sync_event.ts";
import type { CommandFailure } from "../../tests/support/fakes/fake_command_runner.ts";
import { goldenNftMeaning, NftablesStage } from "../../tests/support/stages/nftables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { NftError } from "../netfilter/nft/nft_runner.ts";

const TABLE = "ip kube-relay";

function service(number: number, to: readonly string[]) {
  const clusterIp = `172.30.${number % 7}.${number}`;
  return testServicePlan({ name: `web-${number}`, clusterIp, nodePort: 30_000 + number, to });
}

const NUMBERS = Array.from({ length: 40 }, (_, index) => index + 1);
const BEFORE = rulesPlan(NUMBERS.map((n) => service(n, n % 5 === 0 ? [] : [`10.1.0.${n}:80`])));
/** Some are new, some gone, some moved, some have lost or got all of their endpoints. */
const AFTER = rulesPlan(
  NUMBERS.filter((n) => n % 4 !== 0).map((n) =>
    service(n + (n % 3), n % 5 === 1 ? [] : ["10.2.0.1:80", "10.2.0.2:80"])
  ),
);

/** A machine with other software, on which kube-relay runs, or is about to. */
async function stageAt(point: "first sync" | "a change"): Promise<NftablesStage> {
  const stage = new NftablesStage();
  stage.machine.tool.run("add table ip other\nadd chain ip other foreign\n");
  await stage.backend.start();
  if (point === "a change") await stage.sync(BEFORE);
  return stage;
}

/** Compares the table with that of a machine without failures. */
function assertGolden({ machine, meaning }: NftablesStage): void {
  assertEquals(meaning, goldenNftMeaning(AFTER));
  assertEquals(machine.tool.tables.toSorted(), [TABLE, "ip other"]);
}

async function failureOf(action: () => Promise<unknown>): Promise<unknown> {
  try {
    await action();
    return undefined;
  } catch (error) {
    return error;
  }
}

const FAILURES: readonly (readonly [what: string, failure: CommandFailure])[] = [
  ["is missing", "not-found"],
  ["may not be run", "not-permitted"],
  ["hangs past the time-out", "timeout"],
  ["cannot be run", "failed"],
  ["is killed", "killed"],
  ["has no rights", { code: 1, stderr: "Operation not permitted (you must be root)\n" }],
  ["ends with garbage", { code: 77, stdout: "\u0000\u0001", stderr: "%$/line of noise" }],
  ["ends on an assertion", { code: 134, stderr: "nft: netlink.c:799: Assertion failed\n" }],
  ["prints garbage and succeeds", { code: 0, stdout: "*&^%\n:(\n" }],
  ...[1, 99_999].map((line) =>
    [`refuses line ${line}`, {
      code: 1,
      stderr: `/dev/stdin:${line}:1-9: Error: Could not process rule: Invalid argument\n`,
    }] as const
  ),
];

for (const point of ["first sync", "a change"] as const) {
  for (const [what, failure] of FAILURES) {
    for (const carriedOut of [false, true]) {
      // A program that says that it has succeeded has done its work.
      if (typeof failure !== "string" && failure.code === 0 && !carriedOut) continue;
      const after = carriedOut ? ", after all its work" : "";
      Deno.test(`sequence: ${point}: a command that ${what}${after}`, async () => {
        let commands = 1;
        for (let nth = 1; nth <= commands; nth++) {
          await using stage = await stageAt(point);
          const { calls } = stage.machine.commands;
          const before = calls.length;
          stage.machine.commands.failCall(before + nth, failure, { carriedOut });
          const error = await stage.trySync(AFTER);
          commands = calls.length - before;
          if (error) {
            assert(error instanceof SyncFailure && error.cause instanceof NftError, `${error}`);
          }
          assertEquals((await stage.sync(AFTER)).quarantined, []);
          assertGolden(stage);
        }
      });
    }
  }

  Deno.test(`sequence: ${point}: an element is refused, and its ServicePort waits alone`, async () => {
    await using stage = await stageAt(point);
    const bad = [...AFTER.services.values()].find(({ internal }) => internal.kind === "forward")!;
    const element = `  ${bad.clusterIp} . tcp . 80 . 0x80000000 : `;
    stage.machine.judge = (line) => line.startsWith(element) ? "Invalid argument" : undefined;
    assertEquals((await stage.sync(AFTER)).quarantined.map(({ key }) => key), [bad.key]);
    const others = [...AFTER.services.values()].filter((each) => each !== bad);
    assertEquals(stage.meaning, goldenNftMeaning(rulesPlan(others)));
    stage.machine.judge = () => undefined;
    await stage.wait();
    assertEquals((await stage.sync(AFTER)).quarantined, []);
    assertGolden(stage);
    assertEquals(stage.drift, []);
  });

  for (const carriedOut of [false, true]) {
    const how = carriedOut ? "after" : "before";
    Deno.test(`sequence: ${point}: kube-relay dies ${how} its write, and starts again`, async () => {
      await using stage = await stageAt(point);
      const reads = point === "first sync" ? 1 : 0;
      const { calls } = stage.machine.commands;
      stage.machine.commands.failCall(calls.length + reads + 1, "killed", { carriedOut });
      assert(await stage.trySync(AFTER) instanceof SyncFailure);
      await stage.restart();
      const { operations } = await stage.sync(AFTER);
      // What is left to do then: the numbers of the chains that nothing leads to any more.
      assertEquals((operations["elements"] ?? 0) <= 2, carriedOut, "known by the reading");
      assertGolden(stage);
      assertEquals(stage.drift, []);
    });
  }
}

Deno.test("sequence: start() fails if nft is missing, and reports it", async () => {
  await using stage = new NftablesStage();
  stage.machine.commands.failNext("not-found");
  assert(await failureOf(() => stage.backend.start()) instanceof NftError);
  assert(await stage.trySync(AFTER) instanceof Error, "it has not started");
  await stage.backend.start();
  await stage.sync(AFTER);
  assertEquals(stage.meaning, goldenNftMeaning(AFTER));
});

Deno.test("sequence: another program deletes the table; it is repaired within seconds", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  stage.machine.deleteTable(TABLE);
  await stage.pass(6_000);
  assertGolden(stage);
  assertEquals(stage.drift.map(({ kind }) => kind), ["chain", "rule"]);
  for (const { found, repaired } of stage.drift) assert(found > 0 && found === repaired);
  assertEquals(stage.warnings, [
    "Another program removed or replaced chains of nftables; repairing",
    "Another program removed or changed rules; repairing",
  ]);
});

Deno.test("sequence: the table is gone before a change; the sync repairs it and quarantines nothing", async () => {
  await using stage = await stageAt("a change");
  stage.machine.deleteTable(TABLE);
  assertEquals((await stage.sync(AFTER)).quarantined, []);
  assertGolden(stage);
});

Deno.test("sequence: the repair fails, and is tried again", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  stage.machine.deleteTable(TABLE);
  stage.machine.judge = (line) => line.startsWith("add table") ? "Out of memory" : undefined;
  await stage.pass(6_000);
  assertEquals([stage.drift, stage.machine.tool.tables], [[], ["ip other"]]);
  assert(stage.warnings.includes("Cannot check the table; trying again"));
  stage.machine.judge = () => undefined;
  await stage.pass(6_000);
  assertGolden(stage);
});

Deno.test("sequence: a rule is added, and the next full reading repairs it", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  // How rules are printed is learnt by the first reading after they were written.
  await stage.pass(31_000);
  assertEquals(stage.drift, []);
  stage.machine.tool.run(`add rule ${TABLE} services drop\n`);
  await stage.pass(31_000);
  assertGolden(stage);
  assertEquals(stage.drift, [{ kind: "chain", found: 1, repaired: 1 }]);
});

Deno.test("sequence: a restart adopts the table, and neither it nor the watch writes anything", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  await stage.restart();
  const { operations } = await stage.sync(AFTER);
  assertEquals(operations, { reads: 1 });
  assertGolden(stage);
  const { writes } = stage.machine;
  for (let time = 1; time <= 3; time++) {
    await stage.pass(301_000);
    assertEquals([stage.drift, stage.machine.writes.length], [[], writes.length]);
  }
});

Deno.test("sequence: next to a kube-proxy nothing is compared, because it does not write these tables", async () => {
  await using stage = await stageAt("a change");
  const { commands } = stage.machine;
  const run = commands.run.bind(commands);
  const seen: string[] = [];
  commands.run = (program, ...rest) => {
    seen.push(program);
    return run(program, ...rest);
  };
  stage.backend.distrust!(true);
  await stage.pass(1_000);
  assertEquals(seen, []);
});
