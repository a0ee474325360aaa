// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * A program in a network namespace: the rules of one tool, with few policies and with
 * many. Prints the cost of each step as JSON.
 */
import process from "node:process";
import { walkPolicies as walkIptables } from "../../support/walk/iptables_policies.ts";
import { renderedPolicyTable, walkConnection } from "../../support/walk/nft_policies.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../../lib/policy/policy_state.ts";
import {
  BENCH_NODE,
  benchLocalPod,
  benchPod,
  benchPodKey,
  benchPodObject,
  benchPolicies,
  benchState,
  type ClusterSize,
  setBenchPolicy,
} from "./bench_cluster.ts";
import {
  EVENT_KINDS,
  type EventKind,
  type IptablesVariant,
  type OwnFigures,
  type PolicyTool,
  type RulesTask,
  type StepCost,
} from "./rules_figures.ts";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import type { PolicyPlane } from "../../../backends/policy/policy_plane.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { MemoryLogger } from "../../support/fakes/memory_logger.ts";

const RUSAGE_CHILDREN = -1;
/** `struct rusage` on 64 bits: two times of 16 bytes, then 14 numbers of 8. */
const RUSAGE_BYTES = 144;

const libc = Deno.dlopen("libc.so.6", {
  getrusage: { parameters: ["i32", "buffer"], result: "i32" },
});

/** Returns the CPU time in milliseconds that all ended children of this process have used. */
function childCpuMs(): number {
  const bytes = new Uint8Array(RUSAGE_BYTES);
  libc.symbols.getrusage(RUSAGE_CHILDREN, bytes);
  const view = new DataView(bytes.buffer);
  const number = (at: number) => Number(view.getBigInt64(at, true));
  const timeMs = (at: number) => number(at) * 1000 + number(at + 8) / 1000;
  return timeMs(0) + timeMs(16);
}

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
async function costOf(
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
async function hintVariant(variant: IptablesVariant): Promise<void> {
  const stdin = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
  await systemCommandRunner.run(`iptables-${variant}-restore`, ["--noflush"], { stdin });
}

/** A cluster, its plan, and the data plane of one tool. */
class PolicyRules implements AsyncDisposable {
  readonly #planner: PolicyPlanner;
  readonly #commands = new CountingCommands();
  readonly #dataPlane: PolicyPlane;

  constructor(tool: PolicyTool, readonly state: PolicyState) {
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

/** Numbers of policies that are compared. */
const FEW = 10;
const MANY = 1_000;
const PODS = 10_000;
/** 10,000 rules, all for pods of this node. */
const LARGEST: ClusterSize = { pods: PODS, policies: 2_000, allLocal: true };
/** Pods of the namespace of the first policy. */
const REMOTE_PODS = [1_008, 2_008, 3_008, 4_008, 5_008, 6_008];

if (import.meta.main) {
  const task: RulesTask = JSON.parse(Deno.args[0] ?? "");
  console.log(JSON.stringify(await measureOwn(task)));
  Deno.exit(0);
}

async function measureOwn(
  { tool, loads, events }: RulesTask,
): Promise<OwnFigures> {
  if (tool !== "nftables") await hintVariant(tool);
  const sizes = [FEW, MANY].map((policies) => ({
    policies,
    loads: [] as StepCost[],
    events: Object.fromEntries(EVENT_KINDS.map((kind) => [kind, []])) as unknown as Record<
      EventKind,
      StepCost[]
    >,
    visitedRules: NaN,
  }));
  // Turns between the sizes: other work of the machine hits all of them alike.
  for (let load = 0; load < loads; load++) {
    for (const size of sizes) {
      await using rules = new PolicyRules(
        tool,
        benchState({ pods: PODS, policies: size.policies }),
      );
      size.loads.push(await rules.load());
      size.visitedRules = visitedRules(tool, rules.plan);
      for (let event = 0; event < events; event++) {
        for (const kind of EVENT_KINDS) {
          size.events[kind].push(await rules.change(eventOf(kind, event)));
        }
      }
    }
  }
  return { tool, sizes, largest: await measureLargest(tool, { loads, events }) };
}

async function measureLargest(
  tool: PolicyTool,
  { loads, events }: { readonly loads: number; readonly events: number },
): Promise<OwnFigures["largest"]> {
  const figures = { loads: [] as StepCost[], changes: [] as StepCost[] };
  const policies = benchPolicies(LARGEST);
  for (let load = 0; load < loads; load++) {
    await using rules = new PolicyRules(tool, benchState(LARGEST));
    figures.loads.push(await rules.load());
    for (let event = 0; event < events; event++) {
      const policy = policies[event * 97 % policies.length]!;
      const [first, ...rest] = policy.rules;
      const changed = { ...policy, rules: [{ ...first!, port: 7_000 + event }, ...rest] };
      figures.changes.push(await rules.change((state) => setBenchPolicy(state, changed)));
    }
  }
  return figures;
}

/** The pods are members of the same sets whatever the number of policies. */
function eventOf(kind: EventKind, nth: number): (state: PolicyState) => void {
  const isLocal = kind.startsWith("local");
  const pod = isLocal ? benchLocalPod(nth % FEW) : benchPod(REMOTE_PODS[nth % REMOTE_PODS.length]!);
  return (state) => {
    state.setPod(benchPodKey(pod), kind.endsWith("goes") ? undefined : benchPodObject(pod));
  };
}

/** The mean over the pods that the policies select. */
function visitedRules(tool: PolicyTool, plan: PolicyPlan): number {
  let [visited, counted] = [0, 0];
  const onRule = () => void visited++;
  const table = tool === "nftables" ? renderedPolicyTable(plan) : undefined;
  const pods = [...plan.pods.values()].filter(({ ingress }) => ingress).length / 2;
  for (let nth = 0; nth < pods; nth++) {
    const pod = benchLocalPod(nth);
    // Another pod of the namespace, which the first rule of the policy allows.
    const peer = benchPod(1_000 * ((nth + 1) % 10) + 10 * pod.namespace + 4);
    if (peer.isLocal || peer.namespace !== pod.namespace) continue;
    counted++;
    const connection = {
      from: parseIpAddress(peer.address),
      to: parseIpAddress(pod.address),
      transport: { protocol: "TCP", port: parsePort(8_000 + nth) },
    } as const;
    const { verdict } = table
      ? walkConnection(table, connection, { onRule })
      : walkIptables(plan, connection, { onRule });
    if (verdict !== "ACCEPT") throw new Error(`The packet to ${pod.address} is ${verdict}`);
  }
  return visited / counted;
}
