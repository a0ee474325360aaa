/**
 * A machine with iptables-nft for IPv4, as its programs show it: `iptables-restore`,
 * `iptables-save` and `iptables -S` work on one {@linkcode FakeIptables}.
 */
import type { IptablesTable } from "../../../backends/netfilter/iptables/iptables_objects.ts";
import { type CommandAnswer, type CommandCall, FakeCommandRunner } from "./fake_command_runner.ts";
import { FakeIptables } from "./fake_iptables.ts";

const TABLES: readonly IptablesTable[] = ["filter", "mangle", "nat"];

/** Refuses a line of a restore: returns the kernel's reason. */
type LineJudge = (line: string) => string | undefined;

/** Thrown to stop a restore. */
class KilledHalfway extends Error {
  override name = "KilledHalfway";
}

/** The machine. */
export class FakeIptablesMachine {
  readonly commands = new FakeCommandRunner();
  readonly tool: FakeIptables;
  /** Rules that the kernel refuses. Those of the probe are judged too. */
  judge: LineJudge = () => undefined;
  /** Whether the kernel only names the refused COMMIT, as iptables-legacy does. */
  tellsCommitOnly = false;
  /** Restores are killed after this number of parts of their input took effect. */
  killedAfter = Infinity;
  #commits = 0;

  /** `onCommit` is called when a part of a restore came into force. */
  constructor(onCommit: (table: IptablesTable) => void = () => {}) {
    this.tool = new FakeIptables((table) => {
      onCommit(table);
      if (++this.#commits === this.killedAfter) throw new KilledHalfway();
    });
    this.commands
      .on("iptables", { code: 127 })
      .on("cat /proc/net/ip_tables_names", {})
      .on("sysctl", {})
      // A kernel without CONFIG_NETFILTER_NETLINK_ACCT.
      .on("nfacct", { code: 1, stderr: "nfacct v1.0.2: error: Operation not supported\n" })
      .on("iptables-restore --version", { stdout: "iptables-restore v1.8.9 (nf_tables)\n" })
      .on("iptables-restore --noflush", (call) => this.#probe(call))
      .on("iptables-restore -w 5 --noflush", (call) => this.#restore(call))
      .on("iptables-save", () => ({ stdout: this.tool.save() }))
      .on("iptables -w 5 -t", (call) => this.#list(call));
  }

  /** The restores so far, each with its input, without those of the probe. */
  get restores(): readonly CommandCall[] {
    return this.commands.calls.filter(({ line }) => line === "iptables-restore -w 5 --noflush");
  }

  /** Every rule that a pattern fits, with its table and chain, in the order of each chain. */
  rules(pattern: RegExp): readonly string[] {
    return TABLES.flatMap((table) =>
      [...this.tool.table(table)].flatMap(([chain, rules]) =>
        rules.filter((rule) => pattern.test(rule)).map((rule) => `${table} ${chain} ${rule}`)
      )
    );
  }

  #restore({ stdin }: CommandCall): CommandAnswer {
    this.#commits = 0;
    const lines = stdin.split("\n");
    const bad = lines.findIndex((line) => this.judge(line) !== undefined);
    // What stands before the table with the bad line is taken.
    const start = bad < 0
      ? lines.length
      : lines.findLastIndex((line, index) => index <= bad && line.startsWith("*"));
    try {
      this.tool.restore(lines.slice(0, start).map((line) => `${line}\n`).join(""));
    } catch (error) {
      if (error instanceof Error && error.cause instanceof KilledHalfway) return { code: 137 };
      return { code: 1, stderr: `iptables-restore: ${String(error)}` };
    }
    if (bad < 0) return {};
    const named = this.tellsCommitOnly ? lines.indexOf("COMMIT", bad) : bad;
    const reason = this.tellsCommitOnly ? "" : `: ${this.judge(lines[bad]!)}`;
    return { code: 1, stderr: `iptables-restore: line ${named + 1} failed${reason}` };
  }

  /** The nft way: a text that the kernel has to refuse, which names every rule that it would. */
  #probe({ stdin }: CommandCall): CommandAnswer {
    const complaints = stdin.split("\n").flatMap((line, index) => {
      // There are no counters.
      const reason = line.includes(" nfacct ") ? "No such file" : this.judge(line);
      return reason === undefined
        ? []
        : [`line ${index + 1}: RULE_APPEND failed (${reason}): rule`];
    });
    const busy = "line 99: CHAIN_DEL failed (Device or resource busy): chain X";
    return { code: 4, stderr: [...complaints, busy].join("\n") };
  }

  #list({ args }: CommandCall): CommandAnswer {
    const [, , , table, , chain = ""] = args;
    if (table !== "filter" && table !== "mangle" && table !== "nat") return { code: 3 };
    const rules = this.tool.table(table).get(chain);
    if (rules === undefined) {
      return { code: 1, stderr: "iptables: No chain/target/match by that name." };
    }
    return { stdout: [`-N ${chain}`, ...rules.map((rule) => `-A ${chain} ${rule}`)].join("\n") };
  }
}
