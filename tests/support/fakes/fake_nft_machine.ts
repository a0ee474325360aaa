/** A machine with nftables, as `nft` shows it: all commands work on one {@linkcode FakeNft}. */
import { type CommandAnswer, type CommandCall, FakeCommandRunner } from "./fake_command_runner.ts";
import { FakeNft } from "./fake_nft.ts";

/** The numbers that nft prints for protocols with `--numeric-protocol`. */
const PROTOCOL_NUMBERS = { tcp: 6, udp: 17, sctp: 132 };

/** The machine. */
export class FakeNftMachine {
  readonly commands = new FakeCommandRunner();
  readonly tool = new FakeNft();
  /** Packets counted by elements with counters, each of 100 bytes; other elements have none. */
  readonly packets = new Map<string, number>();
  /** So many listings to come repeat the first element of each set and map in place of the second. */
  tornListings = 0;
  /** The number of listings to come that lack the rules of all chains after the first. */
  cutListings = 0;
  /** Lines that the kernel refuses, and why. Those of the probe are judged too. */
  judge: (line: string) => string | undefined = () => undefined;

  constructor() {
    this.commands
      .on("nft -f -", (call) => this.#write(call))
      .on("nft --check -f -", (call) => this.#verdict(call) ?? {})
      .on("nft --check --debug=netlink -f -", (call) => this.#trial(call))
      .on(
        "nft --debug=netlink --numeric-protocol list table",
        ({ args }) => this.#listWithCode(args.slice(4).join(" ")),
      )
      .on("nft list chains", ({ args }) => this.#listChains(args[2] ?? ""))
      .on("nft --handle list chains", ({ args }) => this.#listChains(args[3] ?? ""))
      .on("nft list table", ({ args }) => this.#listTable(args.slice(2).join(" ")))
      // It has no default route.
      .on("ip -4 -j route get", { code: 2 })
      .on("ip -6 -j route get", { code: 2 });
  }

  /** All written texts, including refused ones. */
  get writes(): readonly CommandCall[] {
    return this.commands.calls.filter(({ line }) => line === "nft -f -");
  }

  /** Takes a table away, e.g. `ip kube-relay`. */
  deleteTable(name: string): void {
    this.tool.run(`delete table ${name}\n`);
  }

  #write(call: CommandCall): CommandAnswer {
    const refused = this.#verdict(call);
    if (refused) return refused;
    try {
      this.tool.run(call.stdin);
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      return { code: 1, stderr: words.replace(/^(\S+?:\d+:) /, "$11-9: ") };
    }
    return {};
  }

  /** The kernel names every line that it refuses. */
  #verdict({ stdin }: CommandCall): CommandAnswer | undefined {
    const complaints = stdin.split("\n").flatMap((line, index) => {
      const reason = this.judge(line);
      if (reason === undefined) return [];
      return [`/dev/stdin:${index + 1}:1-9: Error: Could not process rule: ${reason}\n${line}\n`];
    });
    return complaints.length === 0 ? undefined : { code: 1, stderr: complaints.join("") };
  }

  /** A rule is its own code here. */
  #trial({ stdin }: CommandCall): CommandAnswer {
    const tool = new FakeNft();
    tool.run(stdin);
    return { stdout: tool.tables.map((name) => this.#code(tool, name, "__set%d")).join("") };
  }

  #listWithCode(name: string): CommandAnswer {
    const listed = this.#listTable(name);
    if (listed.code !== undefined) return listed;
    const stdout = listed.stdout?.replaceAll(
      /(l4proto |[\t{ ])(tcp|udp|sctp)(?=,? |$)/gm,
      (_, before: string, word: keyof typeof PROTOCOL_NUMBERS) => before + PROTOCOL_NUMBERS[word],
    );
    return { stdout: `${this.#code(this.tool, name, "__set0")}${stdout}` };
  }

  /** A set within a rule has a name of its own, which is chosen when it is written. */
  #code(tool: FakeNft, table: string, setName: string): string {
    return [...tool.table(table).chains].flatMap(([chain, rules]) =>
      rules.map((rule) =>
        `${table} ${chain} 1\n  [ ${rule.replaceAll(/(?<=l4proto )\{ .*? \}/g, setName)} ]\n\n`
      )
    ).join("");
  }

  #listChains(family: string): CommandAnswer {
    const stdout = this.tool.tables.filter((name) => name.startsWith(`${family} `)).map((name) =>
      `table ${name} {\n${this.#chains(name, false)}}\n`
    ).join("");
    return { stdout };
  }

  #listTable(name: string): CommandAnswer {
    if (!this.tool.tables.includes(name)) {
      return { code: 1, stderr: `Error: No such file or directory\nlist table ${name}\n` };
    }
    const { declarations, elements, maps } = this.tool.table(name);
    const isTorn = this.tornListings > 0;
    if (isTorn) this.tornListings--;
    const containers = [...elements].map(([container, values]) => {
      const parts = declarations.get(container) ?? [];
      const items = [...values].map(([key, value]) => {
        if (!parts.includes("counter")) return printed(value ? `${key} : ${value}` : key);
        const packets = this.packets.get(key) ?? 0;
        return `${key} counter packets ${packets} bytes ${packets * 100}`;
      });
      if (isTorn && items.length > 1) items[1] = items[0]!;
      const list = items.length === 0 ? "" : `\t\telements = { ${items.join(",\n\t\t\t     ")} }\n`;
      const head = parts.map((part) => `\t\t${part}\n`).join("");
      return `\t${maps.has(container) ? "map" : "set"} ${container} {\n${head}${list}\t}\n\n`;
    });
    const isCut = this.cutListings > 0;
    if (isCut) this.cutListings--;
    const chains = this.#chains(name, true, isCut ? 1 : Infinity);
    return { stdout: `table ${name} {\n${containers.join("")}${chains}}\n` };
  }

  #chains(table: string, withRules: boolean, withRulesTo = Infinity): string {
    const { chains, hooks } = this.tool.table(table);
    return [...chains].map(([name, allRules], index) => {
      const rules = index < withRulesTo ? allRules : [];
      const head = hooks.has(name) ? [hooks.get(name)?.replace(/^\{ (.*) ; \}$/, "$1;")] : [];
      const body = [...head, ...(withRules ? rules : [])].map((line) => `\t\t${line}\n`).join("");
      const handle = withRules ? "" : ` # handle ${this.tool.handles.get(`${table} ${name}`)}`;
      return `\tchain ${name} {${handle}\n${body}\t}\n`;
    }).join("\n");
  }
}

/** The tool prints a priority as a handle of traffic control. */
function printed(element: string): string {
  return element.replaceAll(
    /0x([0-9a-f]{4})([0-9a-f]{4})/g,
    (_, major: string, minor: string) =>
      [major, minor].map((half) => half.replace(/^0+/, "")).join(":"),
  ).replaceAll(/(?<![:\w])ffff:ffff(?![:\w])/g, "root");
}
