import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { chooseIptables } from "./iptables_variant.ts";

const HINTED = "*mangle\n:PREROUTING ACCEPT [0:0]\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
const CANARY = HINTED.replace("IPTABLES-HINT", "KUBELET-CANARY");
const [NFT, LEGACY] = ["iptables v1.8.9 (nf_tables)", "iptables v1.8.9 (legacy)"];

interface Host {
  /** Versions by name; others are not installed. */
  readonly installed: Readonly<Record<string, string>>;
  readonly legacyTables?: string;
  /** The output of `…-save`, by program. */
  readonly saved?: Readonly<Record<string, string>>;
}

function hostWith({ installed, legacyTables = "", saved = {} }: Host): FakeCommandRunner {
  const commands = new FakeCommandRunner();
  const names = ["iptables", "iptables-nft", "iptables-legacy"];
  for (const name of names) {
    commands.on(`${name}-save`, { stdout: saved[`${name}-save`] ?? "" });
    commands.on(`${name}-restore --version`, ({ program, args }) => {
      if (installed[name] !== undefined) return { stdout: `${installed[name]}\n` };
      throw new CommandError(program, args, "not-found", "not there");
    });
  }
  return commands.on("cat /proc/net/ip_tables_names", { stdout: legacyTables });
}

const BOTH = { iptables: NFT, "iptables-nft": NFT, "iptables-legacy": LEGACY };

Deno.test("chooseIptables() chooses the engine with the kubelet's chain, then the one with more rules", async () => {
  const rules = "*nat\n-A a\n-A b\nCOMMIT\n";
  const mangle = "filter\nmangle\n";
  const cases: readonly [name: string, Host, save: string, reason: RegExp][] = [
    [
      "hint in nft",
      { installed: BOTH, legacyTables: mangle, saved: { "iptables-save": HINTED } },
      "iptables-save",
      /kubelet/,
    ],
    [
      "hint in legacy",
      { installed: BOTH, legacyTables: mangle, saved: { "iptables-legacy-save": HINTED } },
      "iptables-legacy-save",
      /kubelet/,
    ],
    [
      "canary of an old kubelet",
      { installed: BOTH, legacyTables: mangle, saved: { "iptables-legacy-save": CANARY } },
      "iptables-legacy-save",
      /kubelet/,
    ],
    [
      "more rules in legacy",
      { installed: BOTH, legacyTables: "nat\n", saved: { "iptables-legacy-save": rules } },
      "iptables-legacy-save",
      /it has 2 rules, the other 0/,
    ],
    ["nothing anywhere", { installed: BOTH }, "iptables-save", /plain iptables is this one/],
    [
      "nothing anywhere, plain is legacy",
      { installed: { iptables: LEGACY, "iptables-nft": NFT } },
      "iptables-save",
      /plain iptables is this one/,
    ],
    ["one only", { installed: { iptables: LEGACY } }, "iptables-save", /only one installed$/],
    ["before 1.8", { installed: { iptables: "iptables v1.6.2" } }, "iptables-save", /only one/],
    [
      "legacy tables that nothing can show",
      { installed: { "iptables-nft": NFT }, legacyTables: "nat\n" },
      "iptables-nft-save",
      /legacy tables too \(nat\)/,
    ],
  ];
  for (const [name, host, save, reason] of cases) {
    const choice = await chooseIptables({ commands: hostWith(host) }, { family: "IPv4" });
    assertEquals(choice.programs?.save, save, name);
    assertEquals(reason.test(choice.programs ? choice.reason : ""), true, name);
  }
});

Deno.test("chooseIptables() never asks legacy tools for unused tables", async () => {
  const commands = hostWith({ installed: BOTH });
  await chooseIptables({ commands }, { family: "IPv4" });
  assertEquals(commands.calls.filter(({ line }) => line.startsWith("iptables-legacy-save")), []);
});

Deno.test("chooseIptables() asks no other program if plain iptables is the nft one and legacy tables are unused", async () => {
  const commands = hostWith({ installed: BOTH });
  await chooseIptables({ commands }, { family: "IPv4" });
  assertEquals(commands.calls.map(({ line }) => line), [
    "iptables-restore --version",
    "cat /proc/net/ip_tables_names",
  ]);
});

Deno.test("chooseIptables() reads no rules if the choice does not hang on them", async () => {
  const commands = hostWith({ installed: BOTH, saved: { "iptables-save": HINTED } });
  const choice = await chooseIptables({ commands }, { family: "IPv4" });
  assertEquals(choice.programs?.save, "iptables-save");
  assertEquals(commands.calls.filter(({ line }) => line.includes("-save")), []);
});

Deno.test("chooseIptables() gives the reason why there is none", async () => {
  const none = await chooseIptables({ commands: hostWith({ installed: {} }) }, { family: "IPv4" });
  assertEquals(none.programs === undefined && none.problem, "iptables-restore is not on the PATH");
  const rubbish = hostWith({ installed: { iptables: "Segmentation fault" } });
  const broken = await chooseIptables({ commands: rubbish }, { family: "IPv4" });
  assertEquals(
    broken.programs === undefined && broken.problem,
    "iptables-restore --version ended with 0 and printed no version",
  );
});
