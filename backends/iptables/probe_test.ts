import { assert, assertEquals, assertRejects } from "@std/assert";
import { CommandError, type CommandRunner } from "../../lib/os/command_runner.ts";
import { IPTABLES_TABLES, RULE_FEATURES } from "../netfilter/iptables/iptables_features.ts";
import { probeChosenIptables } from "../netfilter/iptables/probe_iptables.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { supportOf } from "../../lib/proxy/service_mode.ts";
import { probeIptablesMode } from "./probe.ts";

const BUSY = "line 99: CHAIN_DEL failed (Device or resource busy): chain X";

/** A host with iptables-nft alone; `refuse` makes the kernel refuse rules that hold a text. */
function hostWith(refuse: (rule: string, table: string) => boolean = () => false) {
  const commands = new FakeCommandRunner()
    .on("cat /proc/net/", {})
    .on("conntrack -C", { stdout: "0\n" })
    .on("nfacct", {})
    .on("sysctl -n", { stdout: "1\n" });
  for (const name of ["iptables", "ip6tables"]) {
    commands.on(`${name}-`, { code: 127 });
    commands.on(`${name}-restore --noflush`, ({ stdin }) => {
      const lines = stdin.split("\n");
      const bad = lines.flatMap((line, index) =>
        line.startsWith("-A") && refuse(line, lines[0]!.slice(1))
          ? [`line ${index + 1}: RULE_APPEND failed (No such file or directory): rule in chain X`]
          : []
      );
      return { code: 4, stderr: [...bad, BUSY].join("\n") };
    });
    commands.on(`${name}-restore --version`, { stdout: `${name}-restore v1.8.9 (nf_tables)\n` });
  }
  return commands;
}

Deno.test("probeIptablesMode() needs one run for each table and family if nothing is missing", async () => {
  const commands = hostWith();
  const results = await probeIptablesMode({ commands });
  assertEquals(results.filter(({ available }) => !available), []);
  const runs = commands.calls.filter(({ line }) => line.includes("--noflush"));
  assertEquals(runs.map(({ program, stdin }) => `${program} ${stdin.split("\n")[0]}`).sort(), [
    "ip6tables-restore *filter",
    "ip6tables-restore *mangle",
    "ip6tables-restore *nat",
    "iptables-restore *filter",
    "iptables-restore *mangle",
    "iptables-restore *nat",
  ]);
  for (const { stdin } of runs) assert(!/[{]\w+[}]/.test(stdin), stdin);
});

/** As {@linkcode hostWith}, with tools that also take rules for good, and counters. */
function hostForRun(refuse: (rule: string) => boolean = () => false) {
  const counters = new Set<string>();
  const commands = hostWith(refuse)
    .on("nfacct list", () => ({
      stdout: [...counters].map((name) => `{ pkts = 0, bytes = 0 } = ${name};\n`).join(""),
    }))
    .on("nfacct add", ({ args }) => {
      counters.add(args[1]!);
      return {};
    });
  for (const name of ["iptables", "ip6tables"]) {
    commands.on(`${name}-restore --noflush`, ({ stdin }) => {
      const held = stdin.includes("HELD") ? [BUSY] : [];
      const bad = stdin.split("\n").flatMap((line, index) =>
        line.startsWith("-A") && refuse(line)
          ? [`line ${index + 1}: RULE_APPEND failed (No such file or directory): rule in chain X`]
          : []
      );
      const stderr = [...bad, ...held].join("\n");
      return { code: stderr === "" ? 0 : 4, stderr };
    });
  }
  return commands;
}

Deno.test("probeIptablesMode() needs one run for each family if the mode is about to run", async () => {
  const commands = hostForRun();
  const results = await probeIptablesMode({ commands }, { isForRun: true });
  assertEquals(results.filter(({ available }) => !available), []);
  const runs = commands.calls.filter(({ line }) => line.includes("--noflush"));
  assertEquals(runs.length, 2);
  for (const { stdin } of runs) {
    assertEquals(stdin.match(/^\*.*$/gm), ["*nat", "*filter", "*mangle"]);
    assertEquals(stdin.match(/^COMMIT$/gm)?.length, 3, "the chain never exists in the kernel");
  }
  const counted = commands.calls.filter(({ program }) => program === "nfacct");
  assertEquals(counted.map(({ args }) => args.join(" ")), [
    "list",
    "add ct_state_invalid_dropped_pkts",
    "add localhost_nps_accepted_pkts",
  ]);
});

Deno.test("probeIptablesMode() finds the same missing features if the mode is about to run", async () => {
  const refuse = (rule: string) => / recent | nfacct /.test(rule);
  const reducedOf = async (isForRun: boolean) => {
    const commands = hostForRun(refuse);
    const { reduced } = supportOf(await probeIptablesMode({ commands }, { isForRun }));
    return reduced.map(({ feature, family, detail }) => [feature, family, detail]);
  };
  const found = await reducedOf(true);
  assertEquals(found.length, 4);
  assertEquals(found, await reducedOf(false));
});

Deno.test("probeIptablesMode() needs one run for each family of iptables-legacy", async () => {
  const commands = hostForRun();
  for (const name of ["iptables", "ip6tables"]) {
    commands.on(`${name}-restore --version`, { stdout: `${name}-restore v1.8.9 (legacy)\n` });
  }
  const results = await probeIptablesMode({ commands });
  assertEquals(results.filter(({ available }) => !available), []);
  const runs = commands.calls.filter(({ line }) => line.includes("--noflush"));
  assertEquals(runs.length, 2);
  for (const { stdin } of runs) {
    assertEquals(stdin.match(/^-X KUBE-RELAY-PROBE$/gm)?.length, 3, "nothing stays");
  }
});

Deno.test("probeIptablesMode() removes the chains that iptables-nft kept, though it should have refused them", async () => {
  const commands = hostForRun();
  const inputs = () => commands.calls.filter(({ line }) => line.includes("--noflush"));
  for (const name of ["iptables", "ip6tables"]) commands.on(`${name}-restore --noflush`, {});
  const results = await probeIptablesMode({ commands });
  assertEquals(results.filter(({ available }) => !available), []);
  const removals = inputs().map(({ stdin }) => stdin).filter((stdin) => !stdin.includes("-A"));
  for (const table of ["nat", "filter", "mangle"]) {
    for (const chain of ["KUBE-RELAY-PROBE", "KUBE-RELAY-PROBE-HELD"]) {
      const wanted = `*${table}\n-F ${chain}\n-X ${chain}\nCOMMIT\n`;
      assertEquals(removals.filter((stdin) => stdin === wanted).length, 2, wanted);
    }
  }
});

Deno.test("probeIptablesMode() halves the rules of iptables-legacy to find a missing feature", async () => {
  const runsOf = async (refuse: (rule: string) => boolean) => {
    const commands = hostForRun(refuse);
    for (const name of ["iptables", "ip6tables"]) {
      commands.on(`${name}-restore --version`, { stdout: `${name}-restore v1.8.9 (legacy)\n` });
    }
    const { reduced } = supportOf(await probeIptablesMode({ commands }));
    return [
      reduced.length,
      commands.calls.filter(({ line }) => line.includes("--noflush")).length,
    ];
  };
  assertEquals(await runsOf((rule) => / recent /.test(rule)), [2, 18]);
});

Deno.test("probeIptablesMode() works without optional features", async () => {
  const commands = hostWith((rule) => / recent | comment /.test(rule));
  const { families, missing, reduced } = supportOf(await probeIptablesMode({ commands }));
  assertEquals([families, missing], [["IPv4", "IPv6"], []]);
  assertEquals(reduced.map(({ feature }) => feature), [
    "match recent",
    "match comment",
    "match recent",
    "match comment",
  ]);
});

Deno.test("probeIptablesMode() cannot do without DNAT", async () => {
  const commands = hostWith((rule) => rule.includes(" DNAT "));
  const { families, missing } = supportOf(await probeIptablesMode({ commands }));
  assertEquals([families, missing.map(({ feature }) => feature)], [[], [
    "target DNAT",
    "target DNAT",
  ]]);
});

Deno.test("probeIptablesMode() reports a missing table, and not its rules", async () => {
  const commands = hostWith().on(
    "ip6tables-restore --noflush",
    ({ stdin }) =>
      stdin.startsWith("*nat")
        ? { code: 3, stderr: "ip6tables-restore v1.8.9 (nf_tables): table 'nat' does not exist" }
        : { code: 4, stderr: BUSY },
  );
  const { families, missing } = supportOf(await probeIptablesMode({ commands }));
  assertEquals(families, ["IPv4"]);
  assertEquals(missing.map(({ feature, family }) => [feature, family]), [["table nat", "IPv6"]]);
});

Deno.test("probeIptablesMode() has no module loaded for a lock file that cannot be opened", async () => {
  const reason = "Fatal: can't open lock file /run/xtables.lock: Read-only file system";
  const commands = hostWith();
  for (const name of ["iptables", "ip6tables"]) {
    commands.on(`${name}-restore --noflush`, { code: 4, stderr: reason });
  }
  const { families, missing } = supportOf(await probeIptablesMode({ commands }));
  assertEquals([families, missing[0]?.detail], [[], reason]);
  assertEquals(new Set(missing.map(({ cure }) => cure)).size, 1);
  assertEquals(missing[0]?.cure, "it has to be the file of the host, and writable");
});

Deno.test("probeIptablesMode() reports once that this user may not", async () => {
  const commands = hostWith();
  for (const name of ["iptables", "ip6tables"]) {
    const stderr =
      `${name}-restore: Could not fetch rule set generation id: Permission denied (you must be root)`;
    commands.on(`${name}-restore --noflush`, { code: 4, stderr });
  }
  const stderr = "conntrack v1.4.7: Operation failed: sorry, you must be root";
  commands.on("conntrack -C", { code: 1, stderr });
  const results = await probeIptablesMode({ commands });
  assertEquals(results.filter(({ available }) => !available).map(({ detail }) => detail), [
    "not permitted (needs root / CAP_NET_ADMIN)",
  ]);
});

Deno.test("probeIptablesMode() reports tools that are not installed", async () => {
  const commands = new FakeCommandRunner()
    .on("", { code: 127 })
    .on("conntrack", { code: 1, stderr: "conntrack: Protocol not supported" });
  const results = await probeIptablesMode({ commands });
  const missing = results.filter(({ available }) => !available);
  assertEquals(missing.filter(({ required }) => required).map(({ feature }) => feature), [
    "iptables",
    "iptables",
  ]);
  assertEquals(missing.every(({ cure, lost }) => cure !== undefined && lost !== undefined), true);
});

/** What the tool does, and the number of its runs then. */
const HELD_UP: readonly (readonly [what: string, run: CommandRunner["run"], runs: number])[] = [
  [
    "waits for the lock in vain",
    () => {
      const stderr = "Another app is currently holding the xtables lock; still 0s left.";
      return Promise.resolve({ code: 4, stdout: "", stderr });
    },
    1,
  ],
  // The second run was to remove what the first may have left.
  [
    "hangs",
    (program, args) => Promise.reject(new CommandError(program, args, "timeout", "hangs")),
    2,
  ],
];

/** Probes iptables-legacy. */
function probeLegacy(run: CommandRunner["run"], signal?: AbortSignal) {
  const programs = {
    ...{ variant: "legacy", version: "1.8.9", plain: false } as const,
    ...{ restore: "iptables-legacy-restore", save: "iptables-legacy-save" },
  };
  return probeChosenIptables(
    { commands: { run } },
    { family: "IPv4", programs, reason: "the only one" },
    { tables: IPTABLES_TABLES, rules: [RULE_FEATURES.dnat], signal },
  );
}

for (const [what, run, expected] of HELD_UP) {
  Deno.test(`probeChosenIptables() does not try table after table if the tool ${what}`, async () => {
    let runs = 0;
    const rows = await probeLegacy((...line) => {
      runs++;
      return run(...line);
    });
    assertEquals(runs, expected);
    const late = rows.flatMap((row) => row.available ? [] : [row.isLate]);
    assertEquals(late, IPTABLES_TABLES.map(() => true));
  });

  Deno.test(`probeChosenIptables() that is cancelled cleans up with one run if the tool ${what}`, async () => {
    const controller = new AbortController();
    let runs = 0;
    const probing = probeLegacy((program, args, options) => {
      runs++;
      if (controller.signal.aborted) return run(program, args, options);
      controller.abort();
      return Promise.reject(new CommandError(program, args, "aborted", "aborted"));
    }, controller.signal);
    await assertRejects(() => probing, CommandError, "aborted");
    assertEquals(runs, 2);
  });
}
