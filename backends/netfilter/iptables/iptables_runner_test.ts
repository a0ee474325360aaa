import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { IptablesRunner } from "./iptables_runner.ts";
import { IptablesError } from "./restore_error.ts";

const TEXT = {
  lines: ["*nat", ":A - [0:0]", "COMMIT"],
  ownerOf: () => undefined,
  *text() {
    yield "*nat\n:A - [0:0]\n";
    yield "COMMIT\n";
  },
};

function runnerOn(commands: FakeCommandRunner, version = "iptables-restore v1.8.9 (legacy)") {
  return new IptablesRunner({ commands }, {
    variant: "legacy",
    save: "iptables-legacy-save",
    restore: "iptables-legacy-restore",
    version,
    plain: false,
  });
}

Deno.test("IptablesRunner restores without a flush, and waits for the lock only so long", async () => {
  const commands = new FakeCommandRunner().on("", {});
  await runnerOn(commands).restore(TEXT);
  assertEquals(commands.calls.map(({ line, stdin }) => [line, stdin]), [
    ["iptables-legacy-restore -w 5 --noflush", "*nat\n:A - [0:0]\nCOMMIT\n"],
  ]);
});

Deno.test("IptablesRunner does not ask old programs to wait, because they have no lock there", async () => {
  const commands = new FakeCommandRunner().on("", {});
  await runnerOn(commands, "iptables-restore v1.6.1").restore(TEXT);
  assertEquals(commands.calls.map(({ line }) => line), ["iptables-legacy-restore --noflush"]);
});

Deno.test("IptablesRunner reads all tables by one process", async () => {
  const stdout = "*nat\n:A - [0:0]\n-A A -j DROP\nCOMMIT\n";
  const commands = new FakeCommandRunner().on("iptables-legacy-save", { stdout });
  const { nat } = await runnerOn(commands).save();
  assertEquals([...nat.chains], [["A", ["-j DROP"]]]);
  assertEquals(commands.calls.length, 1);
});

for (
  const [what, answer, kind] of [
    ["breaks off", { stdout: "*nat\n" }, "unclear"],
    ["is noise", { stdout: "&%$\n" }, "unclear"],
    ["fails", { code: 1, stderr: "no" }, "unclear"],
    ["waits for the lock in vain", { code: 4, stderr: "xtables lock" }, "locked"],
  ] as const
) {
  Deno.test(`IptablesRunner knows nothing after a save that ${what}`, async () => {
    const commands = new FakeCommandRunner().on("", answer);
    const error = await assertRejects(() => runnerOn(commands).save(), IptablesError);
    assertEquals(error.kind, kind);
  });
}

Deno.test("IptablesRunner names the refused line of its input", async () => {
  const commands = new FakeCommandRunner().on("", { code: 2, stderr: "Error occurred at line: 2" });
  const error = await assertRejects(() => runnerOn(commands).restore(TEXT), IptablesError);
  assertEquals(error.line, { number: 2, text: ":A - [0:0]", table: "nat" });
  commands.failNext("timeout");
  const hung = await assertRejects(() => runnerOn(commands).restore(TEXT), IptablesError);
  assertEquals(hung.kind, "unclear");
});

Deno.test("IptablesRunner finds rules in a chain, and none if it is empty or gone", async () => {
  const commands = new FakeCommandRunner()
    .on("iptables-legacy -w 5 -t nat -S FULL", { stdout: "-N FULL\n-A FULL -j RETURN\n" })
    .on("iptables-legacy -w 5 -t nat -S EMPTY", { stdout: "-N EMPTY\n" })
    .on("iptables-legacy -w 5 -t nat -S GONE", { code: 1, stderr: "No chain by that name" })
    .on("iptables-legacy -w 5 -t nat -S LOCKED", { code: 4, stderr: "xtables lock" });
  const runner = runnerOn(commands);
  assertEquals(await runner.hasRules("nat", "FULL"), true);
  assertEquals(await runner.hasRules("nat", "EMPTY"), false);
  assertEquals(await runner.hasRules("nat", "GONE"), false);
  await assertRejects(() => runner.hasRules("nat", "LOCKED"), IptablesError);
});

Deno.test("IptablesRunner asks for one rule, without an error for missing chains", async () => {
  const answers = [
    { code: 0 },
    { code: 1, stderr: "line 2 failed: Bad rule (does a matching rule exist in that chain?)." },
    { code: 2, stderr: "Chain 'KUBE-SERVICES' does not exist\nError occurred at line: 3" },
    { code: 4, stderr: "Another app is currently holding the xtables lock" },
  ];
  const commands = new FakeCommandRunner().on("iptables-legacy-restore", () => answers.shift()!);
  const ask = () =>
    runnerOn(commands).hasRule("nat", { chain: "OUTPUT", rule: "-j KUBE-SERVICES" });
  assertEquals([await ask(), await ask(), await ask()], [true, false, false]);
  await assertRejects(ask, IptablesError);
  assertEquals(commands.calls[0]?.stdin, "*nat\n-C OUTPUT -j KUBE-SERVICES\nCOMMIT\n");
});
