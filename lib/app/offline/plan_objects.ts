import type { Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ComparisonScope } from "../../proxy/service_mode.ts";
import type { MachineFacts } from "../../proxy/machine_facts.ts";
import type { ObjectProblem } from "../../api/problem.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import type { BackendDependencies, BackendTable, Dependencies } from "../dependencies.ts";
import { idleBackendOptions } from "../run/idle_backend_options.ts";
import { planSettingsOf } from "../run/plan_settings.ts";
import { ownNode, renderPlan } from "./render_plan.ts";

/** All that is needed, and a log. */
export type PlanNodeDependencies = Dependencies & BackendDependencies;

/** The plans of a node, and what would carry them out there. */
export interface PlannedNode {
  readonly mode: BackendMode;
  readonly nodeName: string;
  /** Whether there was a Node of this name. */
  readonly isNodeKnown: boolean;
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** Whether it is known what the machine has that rules depend on; otherwise it has everything. */
  readonly isMachineKnown: boolean;
  /** What it was planned from: the objects, the own Node among them, and the configuration. */
  readonly informers: InformerSet;
  readonly node: Node | undefined;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  /** What is known of the machine that it was planned for. */
  readonly machine: (family: IpFamily) => KnownMachine;
  /** Makes a backend that serves nothing: it is asked for text, or to look at the machine. */
  readonly createBackend: (family: IpFamily) => Backend;
  /** Keys of all Services, those that nothing is planned for included. */
  readonly services: ReadonlySet<string>;
  /** What of the objects could not be used, one line each. */
  readonly problems: readonly string[];
  /** Whether something is left out because of that. */
  readonly isIncomplete: boolean;
}

/** Objects, and the node that they are planned for. */
interface PlanObjectsOptions {
  readonly informers: InformerSet;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly families: readonly IpFamily[];
  /** What is known of the machine that it is planned for. @default {nothing} */
  readonly machine?: (family: IpFamily) => KnownMachine;
}

/** What a running proxy found of its machine. */
interface KnownMachine {
  readonly interfaceAddresses?: readonly IpAddress[];
  readonly facts?: MachineFacts;
  /** What it could not bring into effect. */
  readonly quarantined?: readonly Quarantined[];
  /** What it has open, where it serves by itself. */
  readonly serving?: ComparisonScope["serving"];
}

/** Plans what has to hold for objects that are all there. */
export async function planObjects(
  dependencies: PlanNodeDependencies,
  { informers, configuration, mode, nodeName, families, machine = () => ({}) }: PlanObjectsOptions,
): Promise<PlannedNode> {
  const node = ownNode(informers);
  const settings = planSettingsOf(configuration.proxy, { nodeName, mode });
  const problems = new Set<string>();
  const plans = new Map<IpFamily, ProxyPlan>();
  for (const family of families) {
    const { interfaceAddresses } = machine(family);
    const found = await renderPlan(dependencies, informers, {
      family,
      configuration,
      settings,
      ...(interfaceAddresses && { interfaceAddresses }),
    });
    plans.set(family, found.plan);
    for (const problem of found.problems) problems.add(problemText(problem));
  }
  return {
    mode,
    nodeName,
    isNodeKnown: node !== undefined,
    informers,
    node,
    configuration,
    machine,
    plans,
    isMachineKnown: families.every((family) => machine(family).facts !== undefined),
    createBackend(family) {
      const { facts } = machine(family);
      return (dependencies.backends as Required<BackendTable>)[mode](dependencies, {
        ...idleBackendOptions(configuration, family),
        ...(facts && { facts }),
      });
    },
    services: new Set(
      [...informers.of(SERVICE).values()].map((service) => serviceKey(namespacedNameOf(service))),
    ),
    problems: [...problems],
    isIncomplete: problems.size > 0,
  };
}

function problemText({ kind, object, path, value, message }: ObjectProblem): string {
  return `${kind} ${object}: ${path}${value === "" ? "" : ` is ${value}`}: ${message}`;
}
