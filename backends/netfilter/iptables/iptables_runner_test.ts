import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { IptablesError, IptablesRunner } from "./iptables_runner.ts";

const LINES = [
  ...["*filter", ":KUBE-SERVICES - [0:0]", "COMMIT", "*nat", ":KUBE-SERVICES - [0:0]"],
  "-A KUBE-SERVICES -d 10.96.0.1 -j KUBE-SVC-A",
  "-A KUBE-SERVICES -d 10.96.0.2 -j DNAT --to-destination 10.0.0.1:80",
  "COMMIT",
];
const INPUT = { lines: LINES, ownerOf: () => "ns/web" };

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
  await runnerOn(commands).restore(INPUT);
  assertEquals(commands.calls.map(({ line, stdin }) => [line, stdin]), [
    ["iptables-legacy-restore -w 5 --noflush", LINES.map((line) => `${line}\n`).join("")],
  ]);
});

Deno.test("IptablesRunner does not ask old programs to wait, because they have no lock there", async () => {
  const commands = new FakeCommandRunner().on("", {});
  await runnerOn(commands, "iptables-restore v1.6.1").restore(INPUT);
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
    ["is cut off by its lock", { code: 1, stderr: "xtables lock" }, "locked"],
    ["is forbidden", { code: 1, stderr: "Permission denied (you must be root)" }, "unavailable"],
    ["waits for the lock in vain", { code: 4, stderr: "xtables lock" }, "locked"],
  ] as const
) {
  Deno.test(`IptablesRunner knows nothing after a save that ${what}`, async () => {
    const commands = new FakeCommandRunner().on("", answer);
    const error = await assertRejects(() => runnerOn(commands).save(), IptablesError);
    assertEquals(error.kind, kind);
  });
}

const NFT = "iptables-restore v1.8.9 (nf_tables)";
const LEGACY = "iptables-restore v1.8.9 (legacy)";

/** Real messages of the tools, with the refused line, or the kind of an error without one. */
const FAILURES:
  readonly (readonly [what: string, code: number, stderr: string, number | string])[] = [
    [
      "an option that the parser of legacy does not know",
      2,
      [
        ...[`${LEGACY}: unknown option "--nonsense"`, "Error occurred at line: 7"],
        "Try `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
      ].join("\n"),
      7,
    ],
    [
      ...["a missing target, which iptables-nft reports at the COMMIT", 2] as const,
      ...[`${NFT}: Chain 'KUBE-SVC-A' does not exist\nError occurred at line: 8\n`, 6] as const,
    ],
    [
      ...["a rule that the kernel refuses, by iptables-nft", 4] as const,
      `${NFT}: \nline 7: RULE_APPEND failed (Invalid argument): rule in chain KUBE-SERVICES\n`,
      7,
    ],
    ["a COMMIT, by legacy", 1, "iptables-restore: line 8 failed\n", 8],
    ["a held lock", 4, "Another app is currently holding the xtables lock; still 4s", "locked"],
    ["a missing right", 4, `${NFT}: Permission denied (you must be root)`, "unavailable"],
    ["a signal", 137, "", "unclear"],
    ["nothing", 1, "", "unclear"],
    ["a line that was not given", 2, "Error occurred at line: 99", "unclear"],
    ["a warning", 3, "# Warning: iptables-legacy tables present, line 7 of it", "unclear"],
    ["the exit code of a crash", 77, "line 7", "unclear"],
  ];

for (const [what, code, stderr, expected] of FAILURES) {
  Deno.test(`IptablesRunner understands a restore that fails with ${what}`, async () => {
    const commands = new FakeCommandRunner().on("", { code, stderr });
    const error = await assertRejects(() => runnerOn(commands).restore(INPUT), IptablesError);
    const number = typeof expected === "number" ? expected : undefined;
    assertEquals([error.kind, error.line?.number], [
      ...[number ? "refused" : expected, number],
    ]);
    assertEquals(error.line?.text, LINES[(number ?? 0) - 1]);
    if (number) assertStringIncludes(error.message, `line ${number} in table nat`);
    assertEquals(error.message.includes(" of ns/web: "), number !== undefined);
    assertStringIncludes(error.message, error.reason);
  });
}

Deno.test("IptablesRunner distinguishes a missing program from one that hangs", async () => {
  for (const [failure, kind] of [["not-found", "unavailable"], ["timeout", "unclear"]] as const) {
    const commands = new FakeCommandRunner().on("", {});
    commands.failNext(failure);
    const error = await assertRejects(() => runnerOn(commands).restore(INPUT), IptablesError);
    assertEquals(error.kind, kind);
  }
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
