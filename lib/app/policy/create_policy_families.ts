import { syncPeriodsOf } from "../../config/configuration.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import { retryBackoff } from "../../engine/sync_runner.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { createConntrack } from "../../os/conntrack.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import type { PolicyPlanSettings } from "../../policy/policy_planner.ts";
import type { ControllerParts } from "../controllers.ts";
import { ConnectionCutter } from "./connection_cutter.ts";
import { NoRulesBackend, type PolicyBackend, type PolicyTool } from "./policy_backend.ts";
import { PolicyFamily } from "./policy_family.ts";
import type { PolicyInputs } from "./policy_inputs.ts";
import { RelayedPolicies } from "./relayed_policies.ts";

/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

interface PolicyFamiliesDependencies extends ControllerParts {
  readonly inputs: PolicyInputs;
  readonly tasks: TaskGroup;
}

/** Options that the families of a run share. */
interface PolicyFamiliesOptions {
  /** `undefined` = no rules are written. */
  readonly tool: PolicyTool | undefined;
  readonly settings: (family: IpFamily) => PolicyPlanSettings;
  readonly isOwnNode: (address: IpAddress) => boolean;
  /** Called after each successful sync. Must not throw. */
  readonly onSynced: (family: IpFamily) => void;
}

/** Creates one for each family that is served; none if this build lacks the tool. */
export function createPolicyFamilies(
  dependencies: PolicyFamiliesDependencies,
  options: PolicyFamiliesOptions,
): readonly PolicyFamily[] {
  const { configuration: { families }, policyBackends } = dependencies;
  if (options.tool !== undefined && policyBackends?.[options.tool] === undefined) return [];
  return families.map((family) => createPolicyFamily(dependencies, { ...options, family }));
}

type FamilyOptions = PolicyFamiliesOptions & { readonly family: IpFamily };

function createPolicyFamily(
  dependencies: PolicyFamiliesDependencies,
  options: FamilyOptions,
): PolicyFamily {
  const { family } = options;
  const { changes, configuration: { proxy }, current, judges, nodeName } = dependencies;
  const edges = { ...dependencies, logger: dependencies.logger.with({ ipFamily: family }) };
  const { minSyncPeriod: waitMs } = proxy.networkPolicy;
  const loop: LoopId = { controller: "network-policy", family };
  const recorder = changes.followPolicies(loop, waitMs);
  const cutsConnections = () => current.proxy.networkPolicy.cutConnections;
  const metrics = edges.metrics.policies;
  const judge = judges.get(family);
  const planned = { family, nodeName, ...options.settings(family) };
  const relayed = judge &&
    new RelayedPolicies({ ...edges, metrics, judge }, { cutsConnections, ...planned });
  const cutter = startCutter(edges, { ...options, plan: () => made.plan });
  const made: PolicyFamily = new PolicyFamily({
    ...{ ...edges, recorder, relayed },
    backend: createBackend(edges, options),
    onSynced: ({ plan, changes }) => {
      if (cutsConnections()) cutter?.synced(plan, changes);
      options.onSynced(family);
    },
  }, {
    ...planned,
    runner: {
      minPeriodMs: waitMs,
      maxPeriodMs: MAX_SYNC_PERIOD_MS,
      retryMs: retryBackoff(edges.random),
    },
  });
  return made;
}

function createBackend(
  edges: PolicyFamiliesDependencies,
  { family, tool }: FamilyOptions,
): PolicyBackend {
  const create = tool && edges.policyBackends?.[tool];
  if (create === undefined) return new NoRulesBackend(family);
  const { changes, configuration: { proxy, mode }, metrics } = edges;
  const loop: LoopId = { controller: "network-policy", family };
  const onDrift = (figures: DriftFigures) => {
    metrics.loops.driftFound(loop, figures);
    changes.driftFound(loop, figures);
  };
  const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, mode);
  return create({ ...edges, onDrift }, { family, syncPeriodMs });
}

/** Starts what ends connections that rules judged; rules never see both ends of a relayed one. */
function startCutter(
  { inputs, tasks, judges, ...edges }: PolicyFamiliesDependencies,
  { family, tool, isOwnNode, plan }: FamilyOptions & { readonly plan: () => PolicyPlan },
): ConnectionCutter | undefined {
  if (tool === undefined) return undefined;
  const conntrack = createConntrack(edges.commands);
  const relay = () => judges.get(family)?.relay;
  const cutter = new ConnectionCutter({ ...edges, metrics: edges.metrics.policies, conntrack }, {
    family,
    whenStill: (action) => inputs.whenStill(() => action(plan())),
    isOwnNode: (address) => isOwnNode(address) || relay()?.serves(address) === true,
  });
  tasks.run(`policy connections ${family}`, (signal) => cutter.run(signal));
  return cutter;
}
