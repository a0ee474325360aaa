/**
 * The ipvs backends of both families on the kernel of the test itself: for the guest of `deno task
 * test:uml`, which has its own network.
 *
 * @module
 */
import { assert } from "@std/assert";
import { IpvsBackend } from "../../../backends/ipvs/backend.ts";
import type { EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
  systemCommandRunner,
} from "../../../lib/os/command_runner.ts";
import type { InterfaceAddress } from "../../../lib/os/network.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import { deepEqual } from "../../../lib/proxy/deep_equal.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { planScenario } from "../../packet_flow/plan_scenario.ts";
import { ADDRESSES } from "../builders/address_plan.ts";
import { FakeNetwork } from "../fakes/fake_network.ts";
import { eventually } from "../eventually.ts";
import { ipvsState, virtualServers } from "./ipvs_state.ts";
import { IPVS_SETTINGS } from "./ipvs_settings.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { testPlanChanges } from "../builders/service_plans.ts";

/** The objects that both backends serve. */
export interface StageObjects {
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
}

/**
 * The time of a process's death: before the n-th program that writes, or when half of its input is
 * read.
 */
export interface Death {
  readonly atWrite: number;
  readonly half: boolean;
}

/** Node ports of an earlier run are known by the node's addresses. */
class NodeNetwork extends FakeNetwork {
  override interfaceAddresses(): readonly InterfaceAddress[] {
    return IP_FAMILIES.flatMap((family) => {
      const { node, nodeSecond } = ADDRESSES[family];
      return [node, nodeSecond].map((address) => ({ interfaceName: "eth0", address }));
    });
  }
}

/** The time of day, and how often it was slept by. */
class CountingClock implements Clock {
  readonly now = systemClock.now;
  readonly wallNow = systemClock.wallNow;
  readonly setTimer = systemClock.setTimer;
  readonly yieldToEventLoop = systemClock.yieldToEventLoop;
  readonly nextTurn = systemClock.nextTurn;
  sleeps = 0;

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.sleeps++;
    return systemClock.sleep(ms, signal);
  }
}

/** Runs programs until it dies, and none from then on. */
export class MortalRunner implements CommandRunner {
  readonly #death: Death | undefined;
  /** Programs that write, so far. */
  writes = 0;
  /** Programs that only read. */
  reads = 0;
  #isDead = false;

  constructor(death?: Death) {
    this.#death = death;
  }

  async run(
    program: string,
    args: readonly string[],
    options: Parameters<CommandRunner["run"]>[2] = {},
  ): Promise<CommandResult> {
    const { stdin } = options;
    if (stdin !== undefined) this.writes++;
    else this.reads++;
    if (this.#isDead || this.writes === this.#death?.atWrite) {
      if (!this.#isDead && this.#death?.half && stdin !== undefined) {
        const lines = (await textOf(stdin)).split("\n");
        const some = lines.slice(0, lines.length >> 1).map((line) => `${line}\n`).join("");
        await systemCommandRunner.run(program, args, { ...options, stdin: some });
      }
      this.#isDead = true;
      throw new CommandError(program, args, "aborted", "kube-relay is dead");
    }
    return await systemCommandRunner.run(program, args, options);
  }
}

/** One process of kube-relay, as far as the kernel is concerned. */
export class IpvsKernelStage implements AsyncDisposable {
  readonly runner: MortalRunner;
  /** The differences that comparisons found. */
  readonly drift: unknown[] = [];
  readonly #backends: readonly Backend[];
  readonly #clocks: readonly CountingClock[];
  readonly #synced = new Map<IpFamily, ProxyPlan>();

  private constructor(runner: MortalRunner, families: readonly IpFamily[]) {
    this.runner = runner;
    this.#clocks = families.map(() => new CountingClock());
    this.#backends = families.map((family, index) =>
      new IpvsBackend({
        clock: this.#clocks[index]!,
        commands: runner,
        logger: new MemoryLogger(),
        network: new NodeNetwork(),
        random: Math.random,
        onDrift: (figures) => void this.drift.push(figures),
      }, { ...IPVS_SETTINGS, family })
    );
  }

  /** One that is ready for its first sync. */
  static async started(
    { runner = new MortalRunner(), families = IP_FAMILIES }: {
      readonly runner?: MortalRunner;
      readonly families?: readonly IpFamily[];
    } = {},
  ): Promise<IpvsKernelStage> {
    const stage = new IpvsKernelStage(runner, families);
    for (const backend of stage.#backends) await backend.start();
    return stage;
  }

  /** Brings its families to the objects, one after the other. */
  async sync(objects: StageObjects): Promise<readonly SyncReport[]> {
    const reports: SyncReport[] = [];
    for (const backend of this.#backends) {
      const previous = this.#synced.get(backend.family);
      const plan = planLike(planScenario({ name: "", ...objects }, backend.family), previous);
      reports.push(await backend.sync(plan, testPlanChanges(plan, previous)));
      this.#synced.set(backend.family, plan);
    }
    return reports;
  }

  /** Has each family compare all that it wrote with the kernel. */
  async compareAll(): Promise<void> {
    for (const [index, backend] of this.#backends.entries()) {
      const clock = this.#clocks[index]!;
      const { sleeps } = clock;
      const { reads } = this.runner;
      backend.recheck?.();
      // The watch sleeps again once it has compared.
      await eventually("the watch has compared", () => clock.sleeps > sleeps);
      assert(this.runner.reads > reads, "nothing was read");
    }
  }

  /** All objects of the mode, once drained ones are removed. */
  async state(): Promise<string> {
    await eventually(
      "all endpoints have drained",
      async () => !(await virtualServers(runHere)).some((line) => line.endsWith("-w 0")),
    );
    return await ipvsState(runHere);
  }

  /** The same without waiting: endpoints that drain are left out. */
  async stateNow(): Promise<string> {
    return (await ipvsState(runHere)).replaceAll(/^-a .* -w 0\n/gm, "");
  }

  /** Takes all of it away. */
  async cleanup(): Promise<void> {
    for (const backend of this.#backends) {
      const { failed } = await backend.cleanup();
      if (failed.length > 0) throw new Error(`Cannot clean up: ${failed.join("; ")}`);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const backend of this.#backends) await backend[Symbol.asyncDispose]();
  }
}

/** The parts that are as they were are the same objects, as where plans are kept up to date. */
function planLike(plan: ProxyPlan, previous: ProxyPlan | undefined): ProxyPlan {
  if (previous === undefined) return plan;
  const services = [...plan.services].map(([key, service]) => {
    const old = previous.services.get(key);
    return [key, old !== undefined && deepEqual(old, service) ? old : service] as const;
  });
  const shared = deepEqual(plan.shared, previous.shared) ? previous.shared : plan.shared;
  return { ...plan, shared, services: new Map(services) };
}

async function textOf(
  pieces: string | Iterable<string> | AsyncIterable<string>,
): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}

async function runHere(program: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await systemCommandRunner.run(program, args);
  if (code !== 0) throw new Error(`Cannot run ${program}: exit code ${code}: ${stderr}`);
  return stdout;
}
