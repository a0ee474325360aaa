import type { Cidr } from "../../lib/net/cidr.ts";
import { type IpFamily, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type {
  DataPlaneDifference,
  DataPlaneRepair,
} from "../../lib/proxy/data_plane_difference.ts";
import type { ComparisonScope } from "../../lib/proxy/service_mode.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { Network } from "../../lib/os/network.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { restoreLines } from "../netfilter/iptables/restore_batch.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { fillLayout } from "../netfilter/wanted_rules.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { adoptKernel } from "./adopt_kernel.ts";
import { AppliedServers } from "./applied_servers.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { compareIpvs, damagedChains } from "./compare.ts";
import { DEVICE, diffInSteps, type KernelState, writtenChain } from "./diff.ts";
import { setupText } from "./ipvs_operation.ts";
import { IpvsRunner, type KernelReading } from "./ipvs_runner.ts";
import { IpvsLayout, leaveOutRefused } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { recordedNodePorts, type ServerRecordFile } from "./server_record_file.ts";
import { StepRefusal } from "./step_refusal.ts";
import { type IpvsStep, WriteFigures } from "./steps.ts";

interface KernelComparisonDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Pick<Network, "interfaceAddresses">;
  readonly recordFile: Pick<ServerRecordFile, "load">;
}

/** Settings of the backend that asks. */
interface KernelComparisonOptions {
  readonly family: IpFamily;
  readonly excludeCidrs: readonly Cidr[];
  readonly facts?: MachineFacts;
  readonly renderOptions: (plan: ProxyPlan) => IpvsRenderOptions;
}

/** Compares and repairs; each time the tools are chosen again. */
export class KernelComparison {
  readonly #dependencies: KernelComparisonDependencies;
  readonly #options: KernelComparisonOptions;

  constructor(dependencies: KernelComparisonDependencies, options: KernelComparisonOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
  }

  /** As {@linkcode Backend.compare}. */
  async compare(
    plan: ProxyPlan,
    scope?: ComparisonScope,
  ): Promise<readonly DataPlaneDifference[]> {
    return await compareKernel(await this.#kernel(), this.#input(plan, scope));
  }

  /** As {@linkcode Backend.repair}. */
  async repair(plan: ProxyPlan, scope?: ComparisonScope): Promise<DataPlaneRepair> {
    return await repairKernel(await this.#kernel(), this.#input(plan, scope));
  }

  #input(plan: ProxyPlan, scope: ComparisonScope = {}): ComparedKernelInput {
    const { excludeCidrs, facts, renderOptions } = this.#options;
    const options = renderOptions(plan);
    if (facts) return { plan, scope, excludeCidrs, options };
    const all = this.#dependencies.network.interfaceAddresses();
    const own = all.filter(({ interfaceName, address }) =>
      interfaceName !== DEVICE && ipFamilyOf(address) === this.#options.family
    );
    const nodeAddresses = new Set(own.map(({ address }) => address));
    return { plan, scope, excludeCidrs, options: { ...options, nodeAddresses } };
  }

  async #kernel(): Promise<ComparedKernel> {
    const { clock, commands, recordFile } = this.#dependencies;
    const { family } = this.#options;
    const choice = await chooseIptables({ commands }, { family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot compare rules of ${family}: ${choice.problem}`);
    }
    const iptables = new IptablesRunner({ commands }, choice.programs);
    return { clock, runner: new IpvsRunner({ clock, commands, iptables }), recordFile };
  }
}

interface ComparedKernel {
  readonly clock: Clock;
  readonly runner: Pick<IpvsRunner, "makeDevice" | "read" | "run">;
  readonly recordFile: Pick<ServerRecordFile, "load">;
}

interface ComparedKernelInput {
  readonly plan: ProxyPlan;
  readonly options: IpvsRenderOptions;
  readonly excludeCidrs: readonly Cidr[];
  readonly scope: ComparisonScope;
}

/** The state that was found, besides the desired one. */
interface Adopted {
  readonly layout: IpvsLayout;
  readonly servers: AppliedServers;
  readonly state: KernelState;
  readonly reading: KernelReading;
}

/** Reads and compares without writing. Throws if something cannot be read. */
async function compareKernel(
  dependencies: ComparedKernel,
  input: ComparedKernelInput,
): Promise<readonly DataPlaneDifference[]> {
  return await compareAdopted(dependencies, await adopt(dependencies, input), input);
}

/** Writes only the differences, then compares again. Throws if a tool refuses something. */
async function repairKernel(
  dependencies: ComparedKernel,
  input: ComparedKernelInput,
): Promise<DataPlaneRepair> {
  const { runner } = dependencies;
  const adopted = await adopt(dependencies, input);
  const found = await compareAdopted(dependencies, adopted, input);
  if (found.length === 0) return { found, left: [], operations: {} };
  const figures = new WriteFigures();
  await runner.makeDevice();
  const state = { ...adopted.state, hasDevice: true };
  for (const step of await repairSteps(dependencies, { ...adopted, state })) {
    try {
      await runner.run(step);
    } catch (error) {
      // The messages of ipvsadm prove nothing; the next comparison verifies the result.
      if (!(error instanceof StepRefusal) || step.tool !== "ipvsadm") throw error;
    }
    figures.add(step);
  }
  return { found, left: await compareKernel(dependencies, input), operations: figures.operations };
}

async function compareAdopted(
  { clock }: ComparedKernel,
  { layout, servers, state, reading: { sets, tables } }: Adopted,
  { scope: { keys } }: ComparedKernelInput,
): Promise<readonly DataPlaneDifference[]> {
  return await inSteps({ clock }, compareIpvs({ layout, servers, state, sets, tables, keys }));
}

async function adopt(
  { clock, runner, recordFile }: ComparedKernel,
  { plan, options, excludeCidrs, scope }: ComparedKernelInput,
): Promise<Adopted> {
  const layout = new IpvsLayout(plan.shared, options);
  await fillLayout(
    {
      set: (service) => layout.set(service),
      quarantine: (item, service) => leaveOutRefused(layout, service, item),
    },
    plan,
    { clock, quarantined: scope.quarantined },
  );
  const servers = new AppliedServers();
  // Flags of a scheduler can't be read: they are taken for the wanted ones.
  for (const key of layout.servers) {
    const server = layout.server(key)?.server;
    if (server) servers.confirm(key, { setup: setupText(server), reals: new Map() });
  }
  const reading = await runner.read();
  const earlierNodePorts = await recordedNodePorts(recordFile);
  const state = adoptKernel({ layout, servers }, reading, { excludeCidrs, earlierNodePorts });
  return { layout, servers, state, reading };
}

/** Chains that are as they should be are left alone, unless a set is missing that rules need. */
async function repairSteps(
  { clock }: ComparedKernel,
  { layout, servers, state, reading: { tables } }: Adopted,
): Promise<readonly IpvsStep[]> {
  if (state.hasRules || state.missingSets.size > 0) {
    return (await inSteps({ clock }, diffInSteps(layout, servers, state))).steps;
  }
  const damaged = damagedChains(layout, tables).map(({ chain }) => chain);
  const there = new Set((tables.nat.chains.get(FROM_CLUSTER) ?? []).map(normalRule));
  const isWhole = damaged.some(({ name }) => name === FROM_CLUSTER);
  const wanted = [...layout.rules.wanted];
  const kept = isWhole ? wanted : wanted.filter((rule) => there.has(normalRule(rule)));
  layout.rules.adopt(new Set(kept));
  const lines = restoreLines((["mangle", "filter", "nat"] as const).map((table) => ({
    table,
    chains: damaged.filter((chain) => chain.table === table)
      .map((chain) => writtenChain(chain, layout)),
  })));
  const rest = await inSteps({ clock }, diffInSteps(layout, servers, { ...state, hasRules: true }));
  const chains: IpvsStep = { tool: "iptables", lines };
  // Jumps to a chain come after it.
  return lines.length === 0 ? rest.steps : [chains, ...rest.steps];
}
