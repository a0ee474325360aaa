import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import type { ObjectProblem } from "../../api/problem.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import type { AskedHost } from "../../proxy/frontend_owners.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ComparisonScope, MachineFacts } from "../../proxy/service_mode.ts";
import {
  namespacedNameOf,
  serviceKey,
  type ServicePortKey,
} from "../../proxy/service_port_name.ts";
import type { BackendDependencies, BackendTable, Dependencies } from "../../app/dependencies.ts";
import type { RoutingInputs } from "../../routing/planned_routing.ts";
import { idleBackendOptions } from "../../app/run/plan_settings.ts";
import { type PlanSettings, planSettingsOf } from "../../app/run/plan_settings.ts";
import { HostRegistry } from "../../app/service/host_registry.ts";
import { withPrimaryAddresses } from "../../app/service/primary_addresses.ts";
import { ALL_NODES, serviceCidrsOf } from "../../app/service/service_subscriptions.ts";
import { Services } from "../../app/service/services.ts";

export type PlanNodeDependencies = Dependencies & BackendDependencies;

/** The objects of routing, and what a running process knows besides. */
export interface RoutedObjects
  extends Pick<RoutingInputs, "live" | "reports" | "isDraining" | "networks"> {
  readonly informers: InformerSet;
}

/** The plans of a node. The machine was not touched. */
export interface PlannedNode {
  readonly mode: BackendMode;
  readonly nodeName: string;
  /** Whether the source has a Node of this name. */
  readonly isNodeKnown: boolean;
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** As {@linkcode EndpointTracker.otherPorts}. */
  readonly otherPorts: (family: IpFamily, key: ServicePortKey) => readonly string[];
  /** Whether the features of the machine are known; otherwise it is assumed to have all. */
  readonly isMachineKnown: boolean;
  readonly informers: InformerSet;
  readonly node: Node | undefined;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly machine: (family: IpFamily) => KnownMachine;
  /** Makes a backend that renders and compares, but is never started. */
  readonly createBackend: (family: IpFamily) => Backend;
  /** Reads what addresses and routes are planned from. Absent if routing is disabled. */
  readonly readRouted?: () => Promise<RoutedObjects>;
  /** Keys of all Services, including those without a plan. */
  readonly services: ReadonlySet<string>;
  /** Objects that could not be used, one line each. */
  readonly problems: readonly string[];
  readonly isIncomplete: boolean;
}

interface PlanObjectsOptions
  extends Pick<PlannedNode, "informers" | "configuration" | "mode" | "nodeName"> {
  readonly families: readonly IpFamily[];
  /** @default {nothing is known} */
  readonly machine?: PlannedNode["machine"];
}

/** The machine of a node, as far as a running proxy reported it. */
interface KnownMachine extends Pick<ComparisonScope, "quarantined" | "serving"> {
  /** @default {the addresses of the Node} */
  readonly interfaceAddresses?: readonly IpAddress[];
  readonly facts?: MachineFacts;
  /** The address by which its default route sends. */
  readonly primaryAddress?: IpAddress;
  /** Machines whose addresses Services ask for. @default {those of the objects} */
  readonly hosts?: readonly AskedHost[];
}

/** Plans a node for objects that are complete. */
export async function planObjects(
  dependencies: PlanNodeDependencies,
  { informers, configuration, mode, nodeName, families, machine = () => ({}) }: PlanObjectsOptions,
): Promise<PlannedNode> {
  const node = ownNode(informers);
  const { externalIpRanges } = configuration.relay;
  const settings = planSettingsOf(configuration.proxy, { nodeName, mode, externalIpRanges });
  const problems = new Set<string>();
  const plans = new Map<IpFamily, ProxyPlan>();
  const endpoints = new Map<IpFamily, EndpointTracker>();
  for (const family of families) {
    const options = { family, configuration, settings, known: machine(family), nodeName };
    const found = await planFamily(dependencies, informers, options);
    plans.set(family, found.services.plan);
    endpoints.set(family, found.services.endpoints);
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
    otherPorts: (family, key) => endpoints.get(family)?.otherPorts(key) ?? [],
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

function ownNode(informers: InformerSet): Node | undefined {
  return informers.of(NODE).values().next().value;
}

/** Plans one family. The addresses of the machine that this runs on have no meaning here. */
async function planFamily(
  { clock }: { readonly clock: Clock },
  informers: InformerSet,
  { family, configuration: { proxy, relay }, settings, known, nodeName }: {
    readonly family: IpFamily;
    readonly nodeName: string;
    readonly known: KnownMachine;
    readonly configuration: PlannedNode["configuration"];
    readonly settings: PlanSettings;
  },
): Promise<{ readonly services: Services; readonly problems: readonly ObjectProblem[] }> {
  const { interfaceAddresses, hosts, primaryAddress } = known;
  const ofRoutes = primaryAddress === undefined ? [] : [primaryAddress];
  const node = withPrimaryAddresses(settings.nodeState(ownNode(informers)), ofRoutes);
  const services = new Services({ clock }, family, settings, {
    node,
    allowExternalIps: featureEnabled(proxy, "AllowServiceExternalIPs"),
    areAnnotationsChecked: relay.manifests.length > 0,
  });
  services.onInterfaceAddresses(
    interfaceAddresses ??
      node.addresses.filter((address) => ipFamilyOf(address) === family).toSorted(),
  );
  services.onServiceCidrs(serviceCidrsOf(informers, relay.serviceCidrs, family));
  // The machines that a running process knew are all that count.
  const registry = new HostRegistry((address, host) => {
    if (!hosts && ipFamilyOf(address) === family) services.onHost(address, host);
  });
  for (const { address, ...host } of hosts ?? []) services.onHost(address, host);
  for (const service of informers.of(SERVICE).values()) services.onService(undefined, service);
  for (const slice of informers.of(ENDPOINT_SLICE).values()) {
    services.onSlice(undefined, slice);
    registry.onSlice(undefined, slice);
  }
  for (const endpoints of informers.of(ENDPOINTS).values()) {
    services.onEndpoints(undefined, endpoints);
    registry.onEndpoints(undefined, endpoints);
  }
  for (const other of informers.subscribe(NODE, ALL_NODES).values()) {
    const { metadata: { name } } = other;
    if (name !== nodeName) registry.onNode(name, other);
  }
  const { problems } = await services.collectChanges([]);
  return { services, problems };
}
