import { assert, assertEquals } from "@std/assert";
import { FakeIptablesMachine } from "./fake_iptables_machine.ts";

const INPUT = "*filter\n:A - [0:0]\nCOMMIT\n*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n";

function restore({ commands }: FakeIptablesMachine, stdin = INPUT) {
  return commands.run("iptables-restore", ["-w", "5", "--noflush"], { stdin });
}

Deno.test("FakeIptablesMachine restores, saves, and shows a chain", async () => {
  const machine = new FakeIptablesMachine();
  assertEquals((await restore(machine)).code, 0);
  const { stdout } = await machine.commands.run("iptables-save", []);
  assert(stdout.includes("-A A -j RETURN\n"));
  const show = (chain: string) =>
    machine.commands.run("iptables", ["-w", "5", "-t", "nat", "-S", chain]);
  assertEquals((await show("A")).stdout, "-N A\n-A A -j RETURN");
  assertEquals((await show("B")).code, 1);
  assertEquals([machine.restores.length, machine.rules(/RETURN/)], [1, ["nat A -j RETURN"]]);
});

Deno.test("FakeIptablesMachine refuses a line, and applies the tables before it", async () => {
  for (const [tellsCommitOnly, line] of [[false, 6], [true, 7]] as const) {
    const machine = Object.assign(new FakeIptablesMachine(), { tellsCommitOnly });
    machine.judge = (text) => text.includes("RETURN") ? "Invalid argument" : undefined;
    const { code, stderr } = await restore(machine);
    assertEquals([code, /line (\d+) failed/.exec(stderr)?.[1]], [1, `${line}`]);
    const { tool } = machine;
    assertEquals([tool.table("filter").has("A"), tool.table("nat").has("A")], [true, false]);
  }
});

Deno.test("FakeIptablesMachine kills a restore after a given number of parts", async () => {
  const machine = new FakeIptablesMachine();
  machine.killedAfter = 1;
  assertEquals((await restore(machine)).code, 137);
  assertEquals(machine.tool.table("nat").has("A"), false);
  machine.killedAfter = Infinity;
  assertEquals((await restore(machine)).code, 0);
});
