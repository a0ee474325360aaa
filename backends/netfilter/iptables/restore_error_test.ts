import { assertEquals, assertInstanceOf, assertStringIncludes } from "@std/assert";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { errorOfCommand, errorOfRead, errorOfRestore, IptablesError } from "./restore_error.ts";

const LINES = [
  "*filter",
  ":KUBE-SERVICES - [0:0]",
  "COMMIT",
  "*nat",
  ":KUBE-SERVICES - [0:0]",
  "-A KUBE-SERVICES -d 10.96.0.1 -j KUBE-SVC-A",
  "-A KUBE-SERVICES -d 10.96.0.2 -j DNAT --to-destination 10.0.0.1:80",
  "COMMIT",
];
const INPUT = {
  lines: LINES,
  ownerOf: (line: number) => line === 6 || line === 7 ? `ns/web-${line}` : undefined,
};
const NFT = "iptables-restore v1.8.9 (nf_tables)";
const LEGACY = "iptables-restore v1.8.9 (legacy)";

/** Real messages of the tools, with the expected parts. */
const REFUSALS: readonly {
  readonly what: string;
  readonly code: number;
  readonly stderr: string;
  readonly line?: number;
  readonly reason: string;
}[] = [
  {
    what: "an option that the parser of legacy does not know",
    code: 2,
    stderr: `${LEGACY}: unknown option "--nonsense"\nError occurred at line: 7\n` +
      "Try `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
    line: 7,
    reason: 'unknown option "--nonsense"',
  },
  {
    what: "a missing target, which iptables-nft reports at the COMMIT",
    code: 2,
    stderr: `${NFT}: Chain 'KUBE-SVC-A' does not exist\nError occurred at line: 8\n`,
    line: 6,
    reason: "Chain 'KUBE-SVC-A' does not exist",
  },
  {
    what: "a rule that the kernel refuses, by iptables-nft",
    code: 4,
    stderr:
      `${NFT}: \nline 7: RULE_APPEND failed (Invalid argument): rule in chain KUBE-SERVICES\n`,
    line: 7,
    reason: "line 7: RULE_APPEND failed (Invalid argument): rule in chain KUBE-SERVICES",
  },
  {
    what: "a rule that the kernel refuses, by legacy, which knows the COMMIT only",
    code: 1,
    stderr: "iptables-restore: line 8 failed\n",
    line: 8,
    reason: "iptables-restore: line 8 failed",
  },
];

for (const { what, code, stderr, line, reason } of REFUSALS) {
  Deno.test(`errorOfRestore() names the line of ${what}`, () => {
    const error = errorOfRestore({ program: "iptables-restore", code, stderr }, INPUT);
    assertEquals([error.kind, error.line?.number, error.reason], ["refused", line, reason]);
    assertEquals(error.line?.text, LINES[(line ?? 0) - 1]);
    assertStringIncludes(error.message, `line ${line} in table nat`);
    assertStringIncludes(error.message, reason);
    assertEquals(error.message.includes(` of ns/web-${line}: `), line === 6 || line === 7);
  });
}

for (
  const [what, code, stderr, kind] of [
    [
      "the lock is held",
      4,
      "Another app is currently holding the xtables lock; still 4s 0us time ahead",
      "locked",
    ],
    [
      "this user may not",
      4,
      `${NFT}: Could not fetch rule set generation id: Permission denied (you must be root)`,
      "unavailable",
    ],
    ["it was killed", 137, "", "unclear"],
    ["it says nothing", 1, "", "unclear"],
    ["it names a line that was not given", 2, "Error occurred at line: 99", "unclear"],
    [
      "only a warning is printed",
      3,
      "# Warning: iptables-legacy tables present, line 7 of it",
      "unclear",
    ],
  ] as const
) {
  Deno.test(`errorOfRestore() blames no line if ${what}`, () => {
    const error = errorOfRestore({ program: "iptables-restore", code, stderr }, INPUT);
    assertEquals([error.kind, error.line], [kind, undefined]);
    assertEquals(error.reason.length > 0, true);
  });
}

Deno.test("errorOfRead() distinguishes a lock from an unknown message", () => {
  const kindOf = (code: number, stderr: string) =>
    errorOfRead({ program: "iptables-save", code, stderr }).kind;
  assertEquals(kindOf(4, "Resource temporarily unavailable"), "locked");
  assertEquals(kindOf(1, "Permission denied (you must be root)"), "unavailable");
  assertEquals(kindOf(1, "%$&"), "unclear");
});

Deno.test("errorOfCommand() distinguishes a missing program from a hanging one, and passes other errors on", () => {
  const errorOf = (kind: CommandError["kind"]) =>
    errorOfCommand("read rules", new CommandError("iptables", [], kind, "Cannot run it"));
  for (const [kind, expected] of [["not-found", "unavailable"], ["timeout", "unclear"]] as const) {
    const error = errorOf(kind);
    assertInstanceOf(error, IptablesError);
    assertEquals([error.kind, error.message], [expected, "Cannot read rules: Cannot run it"]);
  }
  const other = new TypeError("a mistake of ours");
  assertEquals(errorOfCommand("read rules", other), other);
});
