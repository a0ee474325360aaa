import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { RULE_FEATURES } from "../iptables/iptables_features.ts";
import { attemptRules, type IptablesScratch, ruleTrial } from "./iptables_trial.ts";

const NFT: IptablesScratch = { variant: "nft", restore: "iptables-restore", table: "nat" };
const LEGACY: IptablesScratch = { ...NFT, variant: "legacy" };
const TRIALS = [ruleTrial(RULE_FEATURES.masquerade), ruleTrial(RULE_FEATURES.recent)];
/** The kernel's answer to a deletion that it must refuse. */
const BUSY = "line 7: CHAIN_DEL failed (Device or resource busy): chain KUBE-RELAY-PROBE-HELD";

function saying(code: number, stderr: string): FakeCommandRunner {
  return new FakeCommandRunner().on("iptables-restore", { code, stderr });
}

Deno.test("attemptRules() gives iptables-nft a text that the kernel judges and never keeps", async () => {
  const commands = saying(4, BUSY);
  assertEquals(await attemptRules({ commands }, NFT, TRIALS), { kind: "accepted" });
  assertEquals(commands.calls.map(({ line }) => line), ["iptables-restore --noflush -w 30"]);
  assertEquals(commands.calls[0]!.stdin.split("\n"), [
    "*nat",
    ":KUBE-RELAY-PROBE - [0:0]",
    ":KUBE-RELAY-PROBE-HELD - [0:0]",
    "-A KUBE-RELAY-PROBE -j KUBE-RELAY-PROBE-HELD",
    "-A KUBE-RELAY-PROBE -j MASQUERADE",
    "-A KUBE-RELAY-PROBE -m recent --name KUBE-RELAY-PROBE --rcheck --seconds 10 --reap",
    "-X KUBE-RELAY-PROBE-HELD",
    "COMMIT",
    "",
  ]);
});

Deno.test("attemptRules() has iptables-legacy make the chain and remove it by one text", async () => {
  const commands = saying(0, "");
  assertEquals(await attemptRules({ commands }, LEGACY, [TRIALS[0]!]), { kind: "accepted" });
  assertEquals(commands.calls.map(({ stdin }) => stdin.split("\n")), [[
    "*nat",
    ":KUBE-RELAY-PROBE - [0:0]",
    "-A KUBE-RELAY-PROBE -j MASQUERADE",
    "COMMIT",
    "*nat",
    "-F KUBE-RELAY-PROBE",
    "-X KUBE-RELAY-PROBE",
    "COMMIT",
    "",
  ]]);
});

Deno.test("attemptRules() blames the rules whose lines the kernel or the parser names", async () => {
  const cases: readonly [words: string, blamed: [number, string][]][] = [
    [
      `line 6: RULE_APPEND failed (No such file or directory): rule in chain X\n${BUSY}`,
      [[1, "RULE_APPEND failed: No such file or directory"]],
    ],
    [
      `line 5: RULE_APPEND failed (Invalid argument): r\nline 6: RULE_APPEND failed (Not supported): r\n${BUSY}`,
      [[0, "RULE_APPEND failed: Invalid argument"], [1, "RULE_APPEND failed: Not supported"]],
    ],
    [
      "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `recent':No such file or directory\n\n" +
      "Error occurred at line: 6\nTry `iptables-nft-restore -h' or …",
      [[1, "Couldn't load match `recent':No such file or directory"]],
    ],
  ];
  for (const [words, blamed] of cases) {
    const verdict = await attemptRules({ commands: saying(4, words) }, NFT, TRIALS);
    assertEquals(verdict.kind === "refused" && [...verdict.blamed], blamed, words);
  }
});

Deno.test("attemptRules() blames none if legacy names the COMMIT line only", async () => {
  const commands = saying(1, "iptables-restore: line 5 failed");
  const verdict = await attemptRules({ commands }, LEGACY, TRIALS);
  assertEquals(verdict.kind === "refused" && verdict.blamed.size, 0);
});

Deno.test("attemptRules() distinguishes missing rights, a held lock and garbage", async () => {
  const denied = "Fatal: can't open lock file /run/xtables.lock: Permission denied";
  const rights = await attemptRules({ commands: saying(4, denied) }, LEGACY, TRIALS);
  assertEquals(rights, { kind: "hopeless", reason: denied, notPermitted: true });
  const held = "Another app is currently holding the xtables lock; still 1s 0us time ahead";
  const lock = await attemptRules({ commands: saying(4, held) }, LEGACY, TRIALS);
  assertEquals(lock.kind === "hopeless" && lock.notPermitted, false);
  const rubbish = await attemptRules({ commands: saying(139, "\x00\x01") }, NFT, TRIALS);
  assertEquals(rubbish.kind === "refused" && rubbish.reason, "\ufffd\ufffd");
  const silent = await attemptRules({ commands: saying(1, "") }, NFT, TRIALS);
  assertEquals(silent.kind === "refused" && silent.reason, "exit code 1, no word why");
});

Deno.test("attemptRules() removes rules that a tool kept although it should have refused them", async () => {
  const commands = saying(0, "");
  assertEquals(await attemptRules({ commands }, NFT, TRIALS), { kind: "accepted" });
  assertEquals(commands.calls.slice(1).map(({ stdin }) => stdin), [
    "*nat\n-F KUBE-RELAY-PROBE\n-X KUBE-RELAY-PROBE\nCOMMIT\n",
    "*nat\n-F KUBE-RELAY-PROBE-HELD\n-X KUBE-RELAY-PROBE-HELD\nCOMMIT\n",
  ]);
});

Deno.test("attemptRules() removes the chain after a program that was killed or failed", async () => {
  for (const failure of ["timeout", "failed"] as const) {
    const commands = saying(0, "").failCall(1, failure, { carriedOut: true });
    const verdict = await attemptRules({ commands }, LEGACY, TRIALS);
    assertEquals([verdict.kind, commands.calls.length], ["hopeless", 3], failure);
  }
});

Deno.test("attemptRules() removes the chain when the caller gave up meanwhile", async () => {
  const commands = saying(0, "").failCall(1, "aborted", { carriedOut: true });
  await assertRejects(() => attemptRules({ commands }, LEGACY, TRIALS), CommandError);
  assertEquals(commands.calls.length, 3);
});

Deno.test("attemptRules() removes nothing if the program is missing", async () => {
  const commands = saying(0, "").failCall(1, "not-found");
  const verdict = await attemptRules({ commands }, LEGACY, TRIALS);
  assertEquals(
    verdict.kind === "hopeless" && verdict.reason,
    "iptables-restore is not on the PATH",
  );
  assertEquals(commands.calls.length, 1);
});

Deno.test("attemptRules() treats rules as accepted if only the removal of the chain fails", async () => {
  // What another probe does that runs at the same time. Line 6 is the first of the removal.
  const commands = saying(0, "").failCall(1, {
    code: 1,
    stderr: "iptables-restore: line 6 failed",
  });
  const verdict = await attemptRules({ commands }, LEGACY, [TRIALS[0]!]);
  assertEquals([verdict, commands.calls.length], [{ kind: "accepted" }, 3]);
  const refused = saying(0, "").failCall(1, { code: 1, stderr: "iptables-restore: line 4 failed" });
  assertEquals((await attemptRules({ commands: refused }, LEGACY, [TRIALS[0]!])).kind, "refused");
});
