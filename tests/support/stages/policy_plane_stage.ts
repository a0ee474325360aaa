/**
 * The data planes of NetworkPolicy, each on a machine in memory whose tools refuse what the real ones
 * refuse.
 */
import type { DriftFigures } from "../../../backends/netfilter/rule_plane.ts";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import type { PolicyPlane } from "../../../backends/policy/policy_plane.ts";
import { POD_CHAINS } from "../../../backends/policy/iptables/base_chains.ts";
import type { SyncReport } from "../../../lib/engine/data_plane.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { PolicyKey } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { IPV4_PLAN } from "../builders/policy_objects.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import type { CommandCall, FakeCommandRunner } from "../fakes/fake_command_runner.ts";
import { FakeIpvsMachine } from "../fakes/fake_ipvs_machine.ts";
import type { FakeNftTable } from "../fakes/fake_nft.ts";
import { FakeNftMachine } from "../fakes/fake_nft_machine.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { walkConnection as walkIptables } from "../walk/iptables_policies.ts";
import { walkConnection as walkNft } from "../walk/nft_policies.ts";

/** A node with pods and policies, synced as its controller does. */
export abstract class PolicyPlaneStage implements AsyncDisposable {
  abstract readonly tool: PolicyPlane["tool"];
  abstract readonly machine: { readonly commands: FakeCommandRunner };
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  readonly state = new PolicyState();
  readonly planner: PolicyPlanner;
  readonly options: PolicyPlanOptions;
  #plane: PolicyPlane | undefined;

  constructor(options: Partial<PolicyPlanOptions> = {}) {
    this.options = { ...IPV4_PLAN, ...options };
    this.planner = new PolicyPlanner(this.state, this.options);
  }

  /** All that matters of the machine. */
  abstract get meaning(): unknown;
  /** Has the tools refuse lines, for a reason. */
  abstract refuse(judge: (line: string) => string | undefined): void;
  /** Changes an object as another program would; returns a part of its name. */
  abstract damage(place: number): string;
  /** Removes everything, as a flush does. */
  abstract lose(): void;
  /** Commands that write. */
  abstract get writes(): readonly CommandCall[];
  /** Returns the verdict of the machine. */
  abstract verdict(from: string, to: string, port?: number): string;
  /** Another machine, with nothing on it. */
  abstract other(): PolicyPlaneStage;

  get plane(): PolicyPlane {
    const { clock, logger, machine: { commands } } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    return this.#plane ??= POLICY_BACKENDS[this.tool](
      { clock, commands, logger, random: () => 0, onDrift },
      { family: this.options.family, syncPeriodMs: 30_000 },
    );
  }

  /** Plans what happened and brings the machine to it, or throws as the data plane does. */
  async sync(): Promise<SyncReport<PolicyKey>> {
    const changes = this.planner.update();
    try {
      return await this.plane.sync(this.planner.plan, changes);
    } catch (error) {
      this.planner.forget();
      throw error;
    }
  }

  /** Another process takes over: nothing is known to it. */
  async restart(): Promise<void> {
    await this[Symbol.asyncDispose]();
    await this.plane.start();
    this.planner.forget();
  }

  /** What a process comes to that finds nothing. */
  async golden(): Promise<unknown> {
    await using stage = this.other();
    await stage.plane.start();
    await stage.plane.sync(this.planner.plan, { ...stage.planner.update(), full: true });
    return stage.meaning;
  }

  /** Has everything compared now. */
  async recheck(): Promise<void> {
    this.plane.recheck();
    for (let turn = 0; turn < 10; turn++) await settle();
    // It has its turn after the check.
    await this.plane.compare(this.planner.plan);
    for (let turn = 0; turn < 10; turn++) await settle();
  }

  /** Lets time pass, and lets work that begins meanwhile finish. */
  async pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 1_000) {
      await this.clock.advance(1_000);
      for (let turn = 0; turn < 40; turn++) await settle();
    }
  }

  /** Lines that were written since a number of commands. */
  linesSince(writes: number): readonly string[] {
    return this.writes.slice(writes).flatMap(({ stdin }) => stdin.trimEnd().split("\n"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#plane?.[Symbol.asyncDispose]();
    this.#plane = undefined;
  }
}

/** A connection of TCP. */
function connectionOf(from: string, to: string, port: number) {
  const transport = { protocol: "TCP", port: parsePort(port) } as const;
  return { from: parseIpAddress(from), to: parseIpAddress(to), transport };
}

/** The data plane of nftables. */
export class NftPlaneStage extends PolicyPlaneStage {
  readonly tool = "nftables";
  readonly machine = new FakeNftMachine();

  get table(): FakeNftTable {
    return this.machine.tool.table(this.machine.tool.tables[0]!);
  }

  /** An empty chain that nothing leads to is left out. */
  get meaning(): unknown {
    const { chains, hooks, elements, declarations } = this.table;
    return {
      chains: new Map([...chains].filter(([, rules]) => rules.length > 0).sort()),
      hooks: new Map([...hooks].sort()),
      elements: new Map(
        [...elements].map(([name, values]) => [name, [...values].sort()] as const).sort(),
      ),
      declarations: new Map([...declarations].sort()),
    };
  }

  get writes(): readonly CommandCall[] {
    return this.machine.writes;
  }

  refuse(judge: (line: string) => string | undefined): void {
    this.machine.judge = judge;
  }

  lose(): void {
    for (const table of this.machine.tool.tables) this.machine.deleteTable(table);
  }

  damage(place: number): string {
    const { chains, elements } = this.table;
    const [chain] = [...chains].filter(([, rules]) => rules.length > 0).at(place % 7)!;
    const filled = [...elements].filter(([, keys]) => keys.size > 0);
    const [set, keys] = filled[place % Math.max(1, filled.length)] ??
      ["itself", elements.get("itself")!];
    switch (place % 5) {
      case 0:
        chains.get("deny")!.unshift("accept");
        return "deny, rule 1";
      case 1:
        chains.set("foreign", ["accept"]);
        return "foreign";
      case 2:
        chains.delete(chain);
        return chain;
      case 3:
        elements.get("itself")!.set("10.9.9.9 . 10.9.9.9", "");
        return "itself 10.9.9.9 . 10.9.9.9";
      default: {
        const [key = "10.9.9.9"] = keys.keys();
        if (!keys.delete(key)) keys.set(key, "");
        return `${set} ${key}`;
      }
    }
  }

  verdict(from: string, to: string, port = 80): string {
    return walkNft(this.table, connectionOf(from, to, port)).verdict;
  }

  other(): NftPlaneStage {
    return new NftPlaneStage(this.options);
  }
}

/** A rule of another program. */
const FOREIGN = "-s 203.0.113.1 -j ACCEPT";

/** The data plane of iptables. */
export class IptablesPlaneStage extends PolicyPlaneStage {
  readonly tool = "iptables";
  readonly machine = new FakeIpvsMachine();

  constructor(options: Partial<PolicyPlanOptions> = {}) {
    super(options);
    this.refuse(() => undefined);
  }

  /** Rules of other programs do not matter, nor does the order of those of pods. */
  get meaning(): unknown {
    const filter = [...this.machine.iptables.tool.table("filter")].map(([name, rules]) => {
      const own = rules.filter((rule) => rule !== FOREIGN);
      return [name, POD_CHAINS.has(name) ? own.sort() : own] as const;
    });
    return {
      filter: new Map(filter.sort(([one], [other]) => one < other ? -1 : 1)),
      sets: new Map(
        [...this.machine.kernel.sets].map(([name, entries]) => [name, [...entries].sort()] as const)
          .sort(),
      ),
    };
  }

  get writes(): readonly CommandCall[] {
    return this.machine.commands.calls.filter(({ line }) =>
      /restore/.test(line) && !/--version/.test(line)
    );
  }

  refuse(judge: (line: string) => string | undefined): void {
    const { iptables, kernel } = this.machine;
    iptables.judge = (line) => {
      const set = / --match-set (\S+) /.exec(line)?.[1];
      if (set !== undefined && !kernel.sets.has(set)) return `Set ${set} doesn't exist.`;
      return judge(line);
    };
    this.machine.refuses = (_, line) => {
      const [verb, set = ""] = line.split(" ");
      const isNamed = iptables.rules(new RegExp(`--match-set ${set} `)).length > 0;
      if (verb === "destroy" && isNamed) return "it is in use by a kernel component";
      return judge(line);
    };
  }

  lose(): void {
    this.machine.iptables.tool.flush("filter");
  }

  damage(place: number): string {
    const { iptables: { tool }, kernel } = this.machine;
    const filter = tool.table("filter");
    const change = (line: string) => tool.restore(`*filter\n${line}\nCOMMIT\n`);
    const chains = [...filter.keys()].filter((name) => name.startsWith("KUBE-"));
    const chain = chains[place % chains.length]!;
    const sets = [...kernel.sets].filter(([, entries]) => entries.size > 0);
    const [set, entries] = sets[place % Math.max(1, sets.length)] ?? [];
    const [entry = ""] = entries ?? [];
    switch (place % 6) {
      case 0:
        change(`-I ${chain} -j ACCEPT`);
        return chain;
      case 1:
        change(`-D ${chain} ${filter.get(chain)!.at(-1)}`);
        return chain;
      case 2:
        change(`-I FORWARD ${FOREIGN}`);
        return "FORWARD";
      case 3:
        change("-D FORWARD -j KUBE-RELAY-POLICY");
        return "FORWARD";
      default:
        if (place % 2 === 0 && entries?.delete(entry)) return set!;
        kernel.sets.get("KUBE-RELAY-4-KNOWN")!.add("203.0.113.9");
        return "KUBE-RELAY-4-KNOWN";
    }
  }

  verdict(from: string, to: string, port = 80): string {
    const { iptables, kernel } = this.machine;
    const texts = { chains: iptables.tool.table("filter"), sets: kernel.sets };
    return walkIptables(texts, connectionOf(from, to, port)).verdict;
  }

  other(): IptablesPlaneStage {
    return new IptablesPlaneStage(this.options);
  }
}
