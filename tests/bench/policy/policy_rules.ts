/**
 * The rules of the benchmark's cluster on the machine, brought there by the product's data plane, and the
 * cost of each step: of the tools, and of the process itself.
 *
 * @module
 */
import process from "node:process";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import type { PolicyPlane } from "../../../backends/policy/policy_plane.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import type { PolicyState } from "../../../lib/policy/policy_state.ts";
import { MemoryLogger } from "../../support/fakes/memory_logger.ts";
import { childCpuMs } from "../libc.ts";
import { BENCH_NODE } from "./bench_cluster.ts";
import type { IptablesVariant, PolicyTool, StepCost } from "./rules_figures.ts";

/** Counts the input of tools. */
class CountingCommands implements CommandRunner {
  lines = 0;

  run: CommandRunner["run"] = (program, args, options = {}) => {
    const { stdin } = options;
    if (stdin === undefined || Symbol.asyncIterator in Object(stdin)) {
      return systemCommandRunner.run(program, args, options);
    }
    const text = typeof stdin === "string" ? stdin : [...stdin as Iterable<string>].join("");
    this.lines += text.split("\n").filter((line) => line.trim() !== "").length;
    return systemCommandRunner.run(program, args, { ...options, stdin: text });
  };
}

/** The watch for drift never wakes up, so that its looks do not count. */
const SLEEPLESS_CLOCK: Clock = {
  ...systemClock,
  sleep: (_ms, signal) =>
    new Promise((_, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    }),
};

/** Returns what a step costs. */
export async function costOf(
  work: () => Promise<unknown>,
  lines: () => number = () => 0,
): Promise<StepCost> {
  const [tool, own, wall, before] = [
    childCpuMs(),
    process.cpuUsage(),
    performance.now(),
    lines(),
  ];
  await work();
  const wallMs = performance.now() - wall;
  const { user, system } = process.cpuUsage(own);
  return {
    lines: lines() - before,
    toolMs: childCpuMs() - tool,
    ownMs: (user + system) / 1000,
    wallMs,
  };
}

/** Makes the choice of the product fall on a variant of iptables. */
export async function hintVariant(variant: IptablesVariant): Promise<void> {
  const stdin = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
  await systemCommandRunner.run(`iptables-${variant}-restore`, ["--noflush"], { stdin });
}

/** A cluster, its plan, and the data plane of one tool. */
export class PolicyRules implements AsyncDisposable {
  readonly state: PolicyState;
  readonly #planner: PolicyPlanner;
  readonly #commands = new CountingCommands();
  readonly #dataPlane: PolicyPlane;

  constructor(tool: PolicyTool, state: PolicyState) {
    this.state = state;
    this.#planner = new PolicyPlanner(this.state, {
      family: "IPv4",
      nodeName: BENCH_NODE,
      deny: { action: "reject" },
      closedRanges: [],
      podLinks: [],
    });
    const create = POLICY_BACKENDS[tool === "nftables" ? tool : "iptables"];
    if (create === undefined) throw new Error(`There is no data plane for ${tool}`);
    this.#dataPlane = create({
      clock: SLEEPLESS_CLOCK,
      commands: this.#commands,
      logger: new MemoryLogger(),
      random: () => 0.5,
    }, { family: "IPv4", syncPeriodMs: 30_000 });
  }

  get plan(): PolicyPlan {
    return this.#planner.plan;
  }

  /** Starts the data plane and syncs, as the product does first. */
  async load(): Promise<StepCost> {
    return await this.#cost(async () => {
      await this.#dataPlane.start();
      await this.#sync();
    });
  }

  /** Makes a change and syncs it. */
  async change(change: (state: PolicyState) => void): Promise<StepCost> {
    return await this.#cost(async () => {
      change(this.state);
      await this.#sync();
    });
  }

  /** Removes all rules. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#dataPlane.cleanup();
    await this.#dataPlane[Symbol.asyncDispose]();
  }

  async #sync(): Promise<void> {
    const changes = this.#planner.update();
    await this.#dataPlane.sync(this.#planner.plan, changes);
  }

  #cost(work: () => Promise<void>): Promise<StepCost> {
    return costOf(work, () => this.#commands.lines);
  }
}
