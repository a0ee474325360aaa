/**
 * The backend of nftables mode, alone, on the kernel's own tables of a network namespace.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { TableListing } from "../../../backends/netfilter/nft/table_listing.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import { NftablesBackend } from "../../../backends/nftables/backend.ts";
import { servicesTable } from "../../../backends/nftables/containers.ts";
import { renderNftables } from "../../../backends/nftables/render.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { testPlanChanges, testProxyPlan } from "../builders/service_plans.ts";
import { FakeNft } from "../fakes/fake_nft.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { Namespace } from "./netns.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = {
  localTraffic: { kind: "byCidr" as const, cidr: parseCidr("10.0.0.0/8") },
  serviceCidrs: [parseCidr("172.30.0.0/16")],
};

/** The script that runs in place of a write. */
export interface WriteFault {
  readonly script: string;
  /** After so long it is ended. */
  readonly timeoutMs: number;
}

/** A backend of IPv4 whose tools run in a namespace, with its commands. */
export class NftKernelStage implements AsyncDisposable {
  readonly namespace: Namespace;
  readonly logger = new MemoryLogger();
  readonly calls: string[] = [];
  readonly drift: unknown[] = [];
  backend: Backend;
  readonly #syncPeriodMs: number;
  #plan: ProxyPlan | undefined;
  #fault: WriteFault | undefined;

  private constructor(namespace: Namespace, syncPeriodMs: number) {
    this.namespace = namespace;
    this.#syncPeriodMs = syncPeriodMs;
    this.backend = this.#create();
  }

  /** Makes it; the backend has started, and looks after its table so often. */
  static async create({ syncPeriodMs = 50 } = {}): Promise<NftKernelStage> {
    const stage = new NftKernelStage(await Namespace.create("nft"), syncPeriodMs);
    await stage.backend.start();
    return stage;
  }

  /** Another process takes over: nothing is known to it. */
  async restart(): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    this.backend = this.#create();
    this.#plan = undefined;
    await this.backend.start();
  }

  /** Brings the table to what these need. */
  sync(plans: readonly ServicePlan[]): Promise<SyncReport> {
    const plan = testProxyPlan(plans, { shared: SHARED });
    const changes = testPlanChanges(plan, this.#plan);
    this.#plan = plan;
    return this.backend.sync(plan, changes);
  }

  /** Writes the table as an earlier release would; see `nft_layouts.ts`. */
  async writeLayout(
    asLayout: (text: string) => string,
    plans: readonly ServicePlan[],
  ): Promise<void> {
    const { transaction } = renderNftables(testProxyPlan(plans, { shared: SHARED }), OPTIONS);
    const stdin = asLayout([...transaction.text()].join(""));
    const args = ["netns", "exec", this.namespace.name, "nft", "-f", "-"];
    const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
    assertEquals([code, stderr], [0, ""]);
  }

  /** Has a script of bash stand for `nft -f -`, or nothing any more. */
  replaceWrites(fault: WriteFault | undefined): void {
    this.#fault = fault;
  }

  /** Runs nft in the namespace. */
  nft(command: string): Promise<string> {
    return this.namespace.output("nft", command.split(" "));
  }

  /** Compares sets, maps and chains of the kernel with a rendering from nothing. */
  async check(plans: readonly ServicePlan[]): Promise<void> {
    const listing = new TableListing();
    for (const line of (await this.nft("list table ip kube-relay")).split("\n")) listing.take(line);
    const { elements, rules } = listing.end();
    const { transaction } = renderNftables(testProxyPlan(plans, { shared: SHARED }), OPTIONS);
    const fake = new FakeNft();
    fake.run([...transaction.text()].join(""));
    const wanted = fake.table("ip kube-relay");
    for (const name of servicesTable("IPv4").containers.keys()) {
      // The packet path fills it.
      if (name === "affinity") continue;
      const found = [...elements.get(name) ?? []];
      const texts = (list: Iterable<[string, string]>) =>
        [...list].map(([key, value]) => `${key.replace(/0x8000[08]\w+$/, "")} ${value}`).sort();
      const expected = [...wanted.elements.get(name) ?? []];
      // Chains that nothing leads to stay for a while.
      if (name === "numbered-chains") {
        const missing = expected.filter(([key, value]) => elements.get(name)?.get(key) !== value);
        assertEquals(missing, [], name);
        continue;
      }
      // Which of the numbers an endpoint has is left to history.
      if (/endpoints|choices/.test(name)) assertEquals(texts(found), texts(expected), name);
      else assertEquals(found.sort(), expected.sort(), name);
    }
    for (const chain of wanted.chains.keys()) assert(rules.has(chain), chain);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    await this.namespace[Symbol.asyncDispose]();
  }

  #create() {
    const { name } = this.namespace;
    const commands: CommandRunner = {
      run: (program, args, options) => {
        this.calls.push([program, ...args].join(" "));
        const inside = ["netns", "exec", name];
        const fault = args[0] === "-f" ? this.#fault : undefined;
        if (fault === undefined) {
          return systemCommandRunner.run("ip", [...inside, program, ...args], options);
        }
        const { script, timeoutMs } = fault;
        const shell = ["bash", "-c", script];
        return systemCommandRunner.run("ip", [...inside, ...shell], { ...options, timeoutMs });
      },
    };
    return new NftablesBackend({
      clock: systemClock,
      commands,
      logger: this.logger,
      random: () => 0,
      onDrift: (figures) => this.drift.push(figures),
    }, {
      family: "IPv4",
      masqueradeBit: 14,
      syncPeriodMs: this.#syncPeriodMs,
    });
  }
}
