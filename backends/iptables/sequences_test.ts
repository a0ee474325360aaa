/**
 * Tests every failure of a sync, at each of its commands. After one good sync the rules are those
 * of a machine without failures, and foreign rules are unchanged.
 */
import { assert, assertEquals } from "@std/assert";
import { IptablesError } from "../netfilter/iptables/iptables_runner.ts";
import type { CommandFailure } from "../../tests/support/fakes/fake_command_runner.ts";
import {
  goldenMeaning,
  IptablesStage,
  meaningOf,
} from "../../tests/support/stages/iptables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

/** A foreign rule in each built-in chain, and a foreign chain. */
const FOREIGN = [
  ["*mangle", ...foreignRules("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")],
  ["*filter", ":OTHER-CHAIN - [0:0]", ...foreignRules("INPUT", "FORWARD", "OUTPUT", "OTHER-CHAIN")],
  ["*nat", ...foreignRules("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")],
].map((lines) => [...lines, "COMMIT", ""].join("\n")).join("");

function foreignRules(...chains: readonly string[]): string[] {
  return chains.map((chain) => `-A ${chain} -m mark --mark 0x77 -j ACCEPT`);
}

/** Leftover rules of kube-proxy for one Service that was deleted and for one that exists. */
const LEFTOVERS = `*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 172.30.0.99 -j REJECT
-I FORWARD -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SERVICES -d 172.30.0.1 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j DNAT --to-destination 10.0.0.1:80
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`;

function service(number: number, to: readonly string[]) {
  const clusterIp = `172.30.${number % 7}.${number}`;
  return testServicePlan({ name: `web-${number}`, clusterIp, nodePort: 30_000 + number, to });
}

const NUMBERS = Array.from({ length: 40 }, (_, index) => index + 1);
const BEFORE = rulesPlan(NUMBERS.map((n) => service(n, n % 5 === 0 ? [] : [`10.1.0.${n}:80`])));
/** Some are new, some gone, some moved, some have lost or got all of their endpoints. */
const AFTER = rulesPlan(
  NUMBERS.filter((n) => n % 4 !== 0).map((n) =>
    service(n + (n % 3), n % 5 === 1 ? [] : ["10.2.0.1:80"])
  ),
);

const isForeign = /0x77/;

/** A machine with other software, on which kube-relay runs, or is about to. */
async function stageAt(point: "first sync" | "a change"): Promise<IptablesStage> {
  const stage = new IptablesStage();
  stage.machine.tool.restore(FOREIGN);
  stage.machine.tool.restore(LEFTOVERS);
  await stage.backend.start();
  if (point === "a change") {
    await stage.sync(BEFORE);
    await stage.sync(rulesPlan([...BEFORE.services.values()].slice(1)));
  } // What was read by start() must not spare the first sync a command.
  else await stage.wait();
  return stage;
}

/** Compares rules with those of a machine without failures. Foreign ones are left out. */
function assertGolden({ machine }: IptablesStage, foreign: readonly string[]): void {
  const rules = meaningOf(machine.tool).filter((line) => !isForeign.test(line));
  assertEquals(rules, goldenMeaning(AFTER));
  assertEquals(machine.rules(isForeign), foreign);
}

const LOCKED = "Another app is currently holding the xtables lock; waited 5s before giving up";
const FAILURES: readonly (readonly [what: string, failure: CommandFailure])[] = [
  ["is missing", "not-found"],
  ["may not be run", "not-permitted"],
  ["hangs past the time-out", "timeout"],
  ["cannot be run", "failed"],
  ["does not get the lock", { code: 4, stderr: LOCKED }],
  ["is killed", "killed"],
  ["ends with garbage", { code: 77, stdout: "\u0000\u0001", stderr: "%$/line of noise" }],
  ["prints garbage and succeeds", { code: 0, stdout: "*&^%\n:(\n" }],
  ...[1, 5, 20, 9_999].map((line) =>
    [`refuses line ${line}`, { code: 2, stderr: `Error occurred at line: ${line}` }] as const
  ),
  ...[3, 30].map((line) =>
    [`cannot commit line ${line}`, {
      code: 1,
      stderr: `iptables-restore: line ${line} failed: Invalid argument`,
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
          const foreign = stage.machine.rules(isForeign);
          const { calls } = stage.machine.commands;
          const before = calls.length;
          stage.machine.commands.failCall(before + nth, failure, { carriedOut });
          const error = await stage.trySync(AFTER);
          commands = calls.length - before;
          assert(error === undefined || error instanceof Error);
          const cause = error instanceof Error ? error.cause : undefined;
          if (error) assert(cause instanceof IptablesError, `${error}`);
          await stage.wait();
          assertEquals((await stage.sync(AFTER)).quarantined, []);
          assertGolden(stage, foreign);
        }
      });
    }
  }

  Deno.test(`sequence: ${point}: only the second table is refused`, async () => {
    await using stage = await stageAt(point);
    const foreign = stage.machine.rules(isForeign);
    const { tool } = stage.machine;
    const before = [...tool.table("nat")];
    stage.machine.judge = (line) =>
      line.includes("KUBE-MARK-MASQ") ? "Invalid argument" : undefined;
    const error = await stage.trySync(AFTER);
    // Of the rules that are left, none marks in the second case.
    if (point === "first sync") {
      assert(error instanceof Error);
      assertEquals([...tool.table("nat")], before);
    }
    stage.machine.judge = () => undefined;
    await stage.wait();
    assertEquals((await stage.sync(AFTER)).quarantined, []);
    assertGolden(stage, foreign);
  });
}

for (const table of ["mangle", "filter", "nat"] as const) {
  for (const keepChains of [false, true]) {
    const how = keepChains ? "emptied" : "flushed with its chains";
    Deno.test(`sequence: table ${table} is ${how}; it is repaired within seconds`, async () => {
      await using stage = await stageAt("first sync");
      await stage.sync(AFTER);
      stage.machine.tool.flush(table, { keepChains });
      const foreign = stage.machine.rules(isForeign);
      await stage.pass(11_000);
      assertGolden(stage, foreign);
      const kinds = stage.drift.map(({ kind }) => kind);
      assertEquals(kinds, table === "mangle" ? ["chain"] : ["chain", "rule"]);
      const warnings = stage.logger.lines.filter(({ level }) => level === "warn");
      assertEquals(warnings.map(({ message }) => message), [
        "Another program flushed a table of iptables; repairing",
        "Another program removed or changed rules; repairing",
      ]);
    });
  }
}

Deno.test("sequence: another flush soon after the first one is repaired within a second", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  stage.machine.tool.flush("nat");
  await stage.pass(10_000);
  stage.machine.tool.flush("nat");
  const foreign = stage.machine.rules(isForeign);
  await stage.pass(1_000);
  assertGolden(stage, foreign);
});

Deno.test("sequence: the lock of iptables is held when a table is checked for a flush; that is no drift and no warning", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  let looks = 0;
  stage.machine.commands.on("iptables -w 5 -t", () => {
    looks++;
    return { code: 4, stderr: LOCKED };
  });
  await stage.pass(11_000);
  assertEquals([looks, stage.drift], [3, []], "each table is checked");
  assertEquals(stage.logger.lines.filter(({ level }) => level === "warn"), []);
});

Deno.test("sequence: checks for a flush that take seconds come every few minutes", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  const { commands } = stage.machine;
  const run = commands.run.bind(commands);
  let looks = 0;
  commands.run = async (program, ...rest) => {
    if (program === "iptables") {
      looks++;
      await stage.clock.sleep(1_000);
    }
    return await run(program, ...rest);
  };
  await stage.pass(310_000);
  assertEquals(looks, 3, "one for each table");
  await stage.pass(10_000);
  assertEquals(looks, 6);
});

Deno.test("sequence: damage that the canaries do not show is repaired within an hour", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  const foreign = stage.machine.rules(isForeign);
  stage.machine.tool.restore("*nat\n:KUBE-NODEPORTS - [0:0]\nCOMMIT\n");
  await stage.pass(3_600_000);
  assertGolden(stage, foreign);
  assertEquals(stage.drift, [{ kind: "chain", found: 1, repaired: 1 }]);
});

Deno.test("sequence: rules of a kube-proxy that ran at the same time are removed after its end", async () => {
  await using stage = await stageAt("first sync");
  const foreign = stage.machine.rules(isForeign);
  await stage.sync(AFTER);
  stage.machine.tool.restore(LEFTOVERS.replaceAll(/^-I .*\n/gm, ""));
  stage.backend.recheck!();
  await stage.pass(11_000);
  assertGolden(stage, foreign);
});

Deno.test("sequence: next to a kube-proxy, rules are compared after a sync, once in ten times what that takes", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(AFTER);
  const { commands } = stage.machine;
  const run = commands.run.bind(commands);
  let reads = 0;
  let readMs = 1_000;
  commands.run = async (program, ...rest) => {
    if (program === "iptables-save") {
      reads++;
      if (readMs > 0) await stage.clock.sleep(readMs);
    }
    return await run(program, ...rest);
  };
  const readsOf = async (ms: number) => {
    const before = reads;
    stage.backend.distrust!(true);
    await stage.pass(ms);
    return reads - before;
  };
  assertEquals(await readsOf(2_000), 1);
  assertEquals(await readsOf(2_000), 0, "no sync has ended since");
  readMs = 0;
  await stage.sync(BEFORE);
  assertEquals(await readsOf(5_000), 0, "too early");
  await stage.pass(5_000);
  assertEquals(await readsOf(2_000), 1);
});

Deno.test("sequence: foreign rules that come later stay where they were put", async () => {
  await using stage = await stageAt("first sync");
  await stage.sync(BEFORE);
  const lines = ["*filter", "-I INPUT -s 192.0.2.1 -m mark --mark 0x77 -j ACCEPT", "COMMIT", ""];
  stage.machine.tool.restore(lines.join("\n"));
  const foreign = stage.machine.rules(isForeign);
  await stage.sync(AFTER);
  await stage.pass(3_600_000);
  await stage.restart();
  await stage.sync(AFTER);
  assertGolden(stage, foreign);
  assertEquals(stage.machine.tool.table("filter").get("INPUT")?.[0], lines[1]?.slice(9));
});
