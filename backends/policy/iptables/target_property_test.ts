/** Random histories of the data plane on a machine in memory. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { SyncFailure } from "../../../lib/engine/sync_failure.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { clusterHistory, handleEvent } from "../../../tests/policy/random_cluster.ts";
import { IPV4_PLAN } from "../../../tests/support/builders/policy_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeIpvsMachine } from "../../../tests/support/fakes/fake_ipvs_machine.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { POD_CHAINS } from "./base_chains.ts";
import { POLICY_BACKENDS } from "../mod.ts";

class Stage {
  readonly machine = new FakeIpvsMachine();
  readonly clock = new FakeClock();
  readonly state = new PolicyState();
  readonly planner: PolicyPlanner;
  readonly options: PolicyPlanOptions;
  plane = this.#plane();
  refuses: (line: string) => string | undefined = () => undefined;

  constructor(options: PolicyPlanOptions) {
    this.options = options;
    this.planner = new PolicyPlanner(this.state, options);
    const { iptables, kernel } = this.machine;
    iptables.judge = (line) => {
      const set = / --match-set (\S+) /.exec(line)?.[1];
      if (set !== undefined && !kernel.sets.has(set)) return `Set ${set} doesn't exist.`;
      return this.refuses(line);
    };
    this.machine.refuses = (_, line) => {
      const [verb, set = ""] = line.split(" ");
      const isNamed = iptables.rules(new RegExp(`--match-set ${set} `)).length > 0;
      if (verb === "destroy" && isNamed) return "it is in use by a kernel component";
      return this.refuses(line);
    };
  }

  #plane() {
    const dependencies = {
      clock: this.clock,
      commands: this.machine.commands,
      logger: new MemoryLogger(),
      random: () => 0,
    };
    return POLICY_BACKENDS.iptables(dependencies, {
      family: "IPv4",
      syncPeriodMs: 30_000,
    });
  }

  async restart(): Promise<void> {
    await this.plane[Symbol.asyncDispose]();
    this.plane = this.#plane();
    await this.plane.start();
    this.planner.setOptions(this.planner.plan);
  }

  async sync(): Promise<boolean> {
    const changes = this.planner.update();
    try {
      await this.plane.sync(this.planner.plan, changes);
      return true;
    } catch (error) {
      this.planner.forget();
      if (!(error instanceof SyncFailure)) throw error;
      return false;
    }
  }

  /** What a process writes that finds nothing. */
  async golden(): Promise<unknown> {
    const other = new Stage(this.options);
    await using plane = other.plane;
    await plane.start();
    await plane.sync(this.planner.plan, { ...this.planner.update(), full: true });
    return meaning(other.machine);
  }

  /** Changes something as another program would. */
  damage(place: number): void {
    const { iptables: { tool }, kernel } = this.machine;
    const filter = tool.table("filter");
    const change = (line: string) => tool.restore(`*filter\n${line}\nCOMMIT\n`);
    const chains = [...filter.keys()].filter((name) => name.startsWith("KUBE-"));
    const chain = chains[place % chains.length]!;
    const sets = [...kernel.sets].filter(([, entries]) => entries.size > 0);
    const [, entries] = sets[place % Math.max(1, sets.length)] ?? [];
    const [entry = ""] = entries ?? [];
    switch (place % 6) {
      case 0:
        change(`-I ${chain} -j ACCEPT`);
        break;
      case 1:
        change(`-D ${chain} ${filter.get(chain)!.at(-1)}`);
        break;
      case 2:
        change(`-I FORWARD ${FOREIGN}`);
        break;
      case 3:
        change("-D FORWARD -j KUBE-RELAY-POLICY");
        break;
      case 4:
        entries?.delete(entry);
        break;
      default:
        kernel.sets.get("KUBE-RELAY-4-KNOWN")!.add("203.0.113.9");
    }
  }
}

/** All that matters: rules of other programs do not, nor does the order of some. */
function meaning(machine: FakeIpvsMachine): unknown {
  const filter = [...machine.iptables.tool.table("filter")].map(([name, rules]) => {
    const own = rules.filter((rule) => rule !== FOREIGN);
    return [name, POD_CHAINS.has(name) ? own.sort() : own] as const;
  });
  return {
    filter: new Map(filter.sort(([one], [other]) => one < other ? -1 : 1)),
    sets: new Map(
      [...machine.kernel.sets].map(([name, entries]) => [name, [...entries].sort()] as const)
        .sort(),
    ),
  };
}

const FOREIGN = "-s 203.0.113.1 -j ACCEPT";

Deno.test("any history comes to what a start from nothing writes", async () => {
  const seen = new Map<string, number>();
  const outcome = fc.constantFrom("none", "sync", "sync", "restart", "fail", "damage", "refuse");
  const options = fc.record({
    deny: fc.constantFrom(
      { action: "reject" as const },
      { action: "drop" as const, log: { perMinute: 10, group: 100 } },
    ),
    closedRanges: fc.constantFrom([], [parseCidr("192.0.2.0/24")]),
  });
  await fc.assert(
    fc.asyncProperty(
      clusterHistory,
      options,
      fc.array(outcome, { minLength: 40, maxLength: 40 }),
      async (history, chosen, outcomes) => {
        const stage = new Stage({ ...IPV4_PLAN, ...chosen });
        await stage.plane.start();
        await stage.sync();
        for (const [index, event] of history.entries()) {
          handleEvent(stage.state, event);
          const what = outcomes[index] ?? "sync";
          seen.set(what, (seen.get(what) ?? 0) + 1);
          if (what === "none") continue;
          if (what === "restart") await stage.restart();
          if (what === "fail") {
            const call = stage.machine.commands.calls.length + 1 + index % 3;
            stage.machine.commands.failCall(call, "timeout", { carriedOut: index % 2 === 0 });
          }
          if (what === "refuse") {
            const line = [
              /--match-set KUBE-RELAY-.P/,
              /multiport/,
              /^add KUBE-RELAY-.P/,
            ][index % 3]!;
            stage.refuses = (text) => line.test(text) ? "no" : undefined;
          }
          const isSynced = await stage.sync();
          // The failure of a command that was not run.
          for (let more = 0; what === "fail" && more < 3; more++) {
            await stage.machine.commands.run("ipset", ["list", "-n"], { timeoutMs: 1 }).catch(
              () => {},
            );
          }
          if (what === "refuse") {
            stage.refuses = () => undefined;
            stage.clock.stall(10_000_000);
          }
          if (what !== "damage" || !isSynced) continue;
          stage.damage(index);
          const { plan } = stage.planner;
          if (index % 2 === 0) await stage.plane.repair(plan);
          else await stage.restart();
          await stage.sync();
          assertEquals(await stage.plane.compare(plan), [], `${index}`);
        }
        for (let more = 0; more < 3; more++) await stage.sync();
        await stage.sync();
        const { plan } = stage.planner;
        assertEquals(await stage.plane.compare(plan), []);
        assertEquals(meaning(stage.machine), await stage.golden());
        await stage.plane[Symbol.asyncDispose]();
      },
    ),
    { numRuns: 100 },
  );
  for (const [what, count] of seen) assert(count > 20, `${what}: ${count}`);
});
