import type { Clock } from "../../lib/os/clock.ts";
import type { ComparisonScope } from "../../lib/proxy/service_mode.ts";
import type {
  DataPlaneDifference,
  DataPlaneRepair,
} from "../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { fillLayout } from "../netfilter/wanted_rules.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { compareRules, foundShape } from "./compare.ts";
import { IptablesLayout } from "./layout.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { RuleWriter } from "./rule_writer.ts";
import { ServiceRuleWriter, type ServiceRuleWriterDependencies } from "./service_rule_writer.ts";
import { WriteFigures } from "./write_figures.ts";

/** The edges. */
interface KernelComparisonDependencies {
  readonly clock: Clock;
  readonly runner: IptablesRunner;
}

/** The edges of a repair. */
interface KernelRepairDependencies
  extends KernelComparisonDependencies, Pick<ServiceRuleWriterDependencies, "recreateCounters"> {}

interface KernelComparisonInput {
  readonly plan: ProxyPlan;
  readonly options: IptablesRenderOptions;
  /**
   * The shape of the writing process's layout; `undefined` = derive it from the rules that were
   * found.
   */
  readonly shape: readonly string[] | undefined;
  readonly scope?: ComparisonScope | undefined;
}

/** Reads the rules and compares them. Writes nothing. Throws an IptablesError. */
export async function compareKernel(
  { clock, runner }: KernelComparisonDependencies,
  input: KernelComparisonInput,
): Promise<readonly DataPlaneDifference[]> {
  const { scope, shape } = input;
  const saved = runner.save();
  const laidOut = shape === undefined
    ? saved.then((tables) => layoutOf(clock, input, tables))
    : layoutOf(clock, input, undefined);
  const [tables, layout] = await Promise.all([saved, laidOut]);
  return await inSteps({ clock }, compareRules({ layout, tables, keys: scope?.keys }));
}

/** Writes only the differences, then compares again. Throws an IptablesError. */
export async function repairKernel(
  dependencies: KernelRepairDependencies,
  input: KernelComparisonInput,
): Promise<DataPlaneRepair> {
  const { clock, runner, recreateCounters } = dependencies;
  const found = await compareKernel(dependencies, input);
  if (found.length === 0) return { found, left: [], operations: {} };
  const shape = input.shape ?? foundShape(await runner.save());
  const layout = await layoutOf(clock, { ...input, shape }, undefined);
  const writer = new RuleWriter({ clock, runner });
  const refused = new RefusedItems();
  const services = new ServiceRuleWriter({ clock, writer, refused, recreateCounters });
  const figures = new WriteFigures();
  await services.write(layout, figures);
  const left = await compareKernel(dependencies, { ...input, shape });
  return { found, left, operations: figures.operations };
}

async function layoutOf(
  clock: Clock,
  { plan, options, shape, scope }: KernelComparisonInput,
  tables: SavedTables | undefined,
): Promise<IptablesLayout> {
  const layout = new IptablesLayout(plan.shared, options, {
    shape: shape ?? (tables ? foundShape(tables) : []),
  });
  await fillLayout(layout, plan, { clock, quarantined: scope?.quarantined });
  layout.dropEmpty();
  return layout;
}
