import { assertEquals, assertNotEquals } from "@std/assert";
import { damagedServices } from "../../tests/support/builders/damaged_services.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { IptablesStage } from "../../tests/support/stages/iptables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import type { Backend } from "../../lib/proxy/backend.ts";
import type { MachineFacts } from "../../lib/proxy/service_mode.ts";
import { IptablesBackend } from "./backend.ts";

function anotherOn({ machine }: IptablesStage, facts?: MachineFacts): Backend {
  return new IptablesBackend({
    clock: new FakeClock(),
    commands: machine.commands,
    logger: new MemoryLogger(),
    random: () => 0,
  }, {
    family: "IPv4",
    masqueradeBit: 14,
    localhostNodePorts: true,
    syncPeriodMs: 30_000,
    ...(facts && { facts }),
  });
}

Deno.test("compare() of some ServicePorts leaves out the chains of removed endpoints of others", async () => {
  await using stage = new IptablesStage();
  await stage.backend.start();
  const [web, ...others] = damagedServices();
  await stage.sync(rulesPlan([web!, ...others]));
  const later = rulesPlan([web!]);
  const differences = await stage.backend.compare(later, { keys: new Set([web!.key]) });
  assertEquals(differences.filter(({ object }) => object === "chain"), []);
  const all = await stage.backend.compare(later);
  assertNotEquals(all.filter(({ object }) => object === "chain"), []);
});

Deno.test("repair() writes nothing if nothing differs", async () => {
  await using stage = new IptablesStage();
  await stage.backend.start();
  const plan = rulesPlan(damagedServices());
  await stage.sync(plan);
  const { calls } = stage.machine.commands;
  const before = calls.length;
  await stage.backend.repair(plan);
  const written = calls.slice(before).filter(({ stdin }) => stdin !== "");
  assertEquals(written.map(({ line }) => line), []);
});

Deno.test("compare() gives the serving process the same result as any other process", async () => {
  await using stage = new IptablesStage();
  await stage.backend.start();
  const plan = rulesPlan(damagedServices());
  await stage.sync(plan);
  for (const damage of ["", "*nat\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"]) {
    stage.machine.tool.restore(damage);
    await using other = anotherOn(stage, stage.backend.facts?.());
    const expected = await other.compare?.(plan) ?? [];
    const before = stage.machine.commands.calls.length;
    assertEquals(await stage.backend.compare?.(plan), expected);
    assertEquals(expected.length > 0, damage !== "");
    const after = stage.machine.commands.calls.slice(before);
    // Differences are read twice: a listing may be incomplete.
    const reads = damage === "" ? 1 : 2;
    assertEquals(after.map(({ line }) => line), Array(reads).fill("iptables-save"));
  }
});

Deno.test("compare() that ignores extra chains finds each chain on the way to a ServicePort", async () => {
  await using stage = new IptablesStage();
  await stage.backend.start();
  const plan = rulesPlan(damagedServices());
  await stage.sync(plan);
  await using other = anotherOn(stage, stage.backend.facts?.());
  const { tool, commands } = stage.machine;
  const { stdout } = await commands.run("iptables-save", []);
  const nat = stdout.split("*nat\n")[1]!.split("COMMIT")[0]!;
  const chainsFound: string[] = [];
  for (const [, chain = ""] of nat.matchAll(/^:(KUBE-\S+) /gm)) {
    tool.restore(`*nat\n:${chain} - [0:0]\nCOMMIT\n`);
    const scope = { keys: new Set([damagedServices()[0]!.key]) };
    const found = await stage.backend.compare?.(plan, { ...scope, ignoresExtra: true }) ?? [];
    const all = await other.compare?.(plan, scope) ?? [];
    // Chains to other ServicePorts only are no concern of this one.
    assertEquals(found, found.length > 0 ? all : all.filter(({ key }) => key !== undefined), chain);
    if (found.length > 0) chainsFound.push(chain.replace(/-[0-9A-Z]{16}$|-[0-9a-f]{8}-/, " "));
    const rules = nat.split("\n").filter((line) => line.startsWith(`-A ${chain} `));
    tool.restore(["*nat", `:${chain} - [0:0]`, ...rules, "COMMIT", ""].join("\n"));
  }
  assertEquals(chainsFound, [
    "KUBE-PROXY-CANARY",
    "KUBE-MARK-MASQ",
    "KUBE-POSTROUTING",
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-VIP 22",
    "KUBE-VIP 28",
  ]);
});
