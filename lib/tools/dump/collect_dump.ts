import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "../../config/configuration.ts";
import { encodeConfiguration } from "../../config/encode_configuration.ts";
import type { RelayOptions } from "../../config/relay_options.ts";
import type { KindSpec } from "../../api/kind.ts";
import type { Controller, FollowedKinds } from "../../engine/controller.ts";
import { DUMP_KIND } from "../../kube/manifests/manifest_objects.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { AskedHost } from "../../proxy/known_hosts.ts";
import type { MachineFacts } from "../../proxy/machine_facts.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import { VERSION } from "../../config/version.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import { RoutingController } from "../../app/routing/routing_controller.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { ServiceFamily } from "../../app/service/services.ts";
import type { ServiceController } from "../../app/service/service_controller.ts";
import type { StatusReport } from "../status/status_report.ts";
import { dumpedRouting } from "./dump_routing.ts";
import { DUMP_SCHEMA, DUMPED_POLICIES, FORMAT_VERSION, withControllers } from "./dump_schema.ts";
import type { DumpSection } from "./dump_value.ts";
import { pickAllowed } from "./pick_allowed.ts";

/** The parts of a dump. */
export interface DumpParts {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly configuration: { readonly proxy: KubeProxyConfiguration; readonly relay: RelayOptions };
  readonly informers: InformerSet;
  /** The own Node as last seen, even if it was deleted since. */
  readonly node: Node | undefined;
  readonly families: readonly DumpedFamily[];
  /** All but the controller of Services. @default {none} */
  readonly controllers?: readonly (Pick<Controller, "name" | "kinds"> & {
    readonly section: DumpSection;
  })[];
  /** Absent if no kube-relay runs. */
  readonly status?: StatusReport;
  readonly changes?: ChangesReport;
}

export interface DumpedFamily {
  readonly family: IpFamily;
  readonly quarantined: readonly Quarantined[];
  /** Absent if the machine was not read. */
  readonly interfaceAddresses?: readonly IpAddress[];
  /** The address by which the default route sends, on a host without a cluster. */
  readonly primaryAddress?: IpAddress;
  /** Machines whose addresses some ServicePort asks for. */
  readonly hosts?: readonly AskedHost[];
  /** Absent if the machine was not read or does not matter. */
  readonly facts?: MachineFacts;
}

/**
 * Makes a dump for `jsonPieces()`. Long lists are copied while they are written; their objects are chosen
 * now, so that later changes are not half in it.
 */
export function collectDump(
  { clock, kernelRelease }: {
    readonly clock: Clock;
    readonly kernelRelease: string | undefined;
  },
  parts: DumpParts,
): unknown {
  const { mode, nodeName, configuration, informers, node, status, changes } = parts;
  const { controllers = [] } = parts;
  // Without its controller, a block has no meaning in the dump.
  const { networkPolicy, routing } = defaultConfiguration();
  const sections = new Map(controllers.map(({ name, section }) => [name, section]));
  const followed = new Map<KindSpec, FollowedKinds>([
    ...controllers.flatMap(({ kinds }) => kinds).filter(({ isInSection }) => !isInSection).map((
      kind,
    ) => [kind.spec, kind.informers ?? informers] as const),
    ...SERVICE_KINDS.map((spec) => [spec, informers] as const),
  ]);
  const kinds = [...followed.keys()];
  const dump = {
    kind: DUMP_KIND,
    formatVersion: FORMAT_VERSION,
    writtenAt: new Date(clock.wallNow()).toISOString(),
    versions: {
      kubeRelay: VERSION,
      deno: Deno.version.deno,
      ...(kernelRelease !== undefined && { kernel: kernelRelease }),
    },
    mode,
    nodeName,
    configuration: {
      proxy: encodeConfiguration({
        ...configuration.proxy,
        ...Object.assign(
          { networkPolicy, routing },
          ...[...sections.values()].map(({ settings }) => settings),
        ),
      }, mode),
      relay: configuration.relay,
    },
    objects: {
      ...Object.fromEntries(
        [...followed].map(([spec, each]) => [spec.plural, [...each.of(spec).values()]]),
      ),
      // As it was last seen: rules depend on it after it was deleted, too.
      [NODE.plural]: node === undefined ? [] : [node],
    },
    families: parts.families.map(dumpFamily),
    ...(status && { status }),
    ...(changes && { changes }),
  };
  if (controllers.length === 0) return pickAllowed(dump, DUMP_SCHEMA);
  const values = Object.fromEntries([...sections].map(([name, { value }]) => [name, value]));
  return pickAllowed(
    { ...dump, controllers: values },
    withControllers(DUMP_SCHEMA, { kinds, sections }),
  );
}

function dumpFamily({ quarantined, ...family }: DumpedFamily) {
  return {
    ...family,
    // Retries change the order in which a mode reports it.
    ...(quarantined.length > 0 && { quarantined: quarantined.toSorted(byKeyAndAddress) }),
  };
}

function byKeyAndAddress(left: Quarantined, right: Quarantined): number {
  const [one, other] = [left, right].map(({ key, address = "" }) => `${key} ${address}`);
  return one === other ? 0 : one! < other! ? -1 : 1;
}

/** Dumps the running process; `collected` is left out where only planning needs the dump. */
export function dumpRunning(
  edges: Pick<Dependencies, "clock" | "network" | "process">,
  run: ObservedRun,
  collected: { readonly status: StatusReport; readonly changes: ChangesReport } | undefined,
): unknown {
  const { services, others, startUp, configuration, current, informers } = run;
  const { relay, mode } = configuration;
  return collectDump({ clock: edges.clock, kernelRelease: edges.process.kernelRelease }, {
    mode,
    nodeName: startUp.node.name,
    configuration: { proxy: current.proxy, relay },
    informers,
    node: services.node,
    families: services.families.map((each) => familyOf(each, services)),
    controllers: others.map((each) => {
      const { name, kinds } = each;
      return { name, kinds, section: sectionOf(each, run) };
    }),
    ...collected,
  });
}

/** The inputs of a controller's plan other than objects. */
function sectionOf(
  controller: Controller,
  { current, startUp }: Pick<ObservedRun, "current" | "startUp">,
): DumpSection {
  if (controller instanceof NetworkPolicyController) {
    const { tool, families } = controller;
    const value = {
      ...(tool !== undefined && { tool }),
      families: families.map(({ family }) => family),
    };
    const { networkPolicy } = current.proxy;
    return { schema: DUMPED_POLICIES, value, settings: { networkPolicy } };
  }
  if (!(controller instanceof RoutingController)) {
    throw new TypeError(`Cannot dump the controller '${controller.name}'`);
  }
  const { bgp, informers, layer2 } = controller;
  return dumpedRouting({
    routing: current.proxy.routing,
    nodeName: startUp.node.name,
    nodes: informers.of(ROUTED_NODE),
    services: informers.of(ROUTED_SERVICE),
    ...{ live: layer2?.live, reports: layer2?.reports },
    isDraining: bgp?.isDraining ?? false,
    networks: controller.networks,
  });
}

function familyOf(
  { family, backend, services: planned, loop }: ServiceFamily,
  services: Pick<ServiceController, "primaryAddress">,
): DumpedFamily {
  const facts = backend.facts();
  const primaryAddress = services.primaryAddress(family);
  const { interfaceAddresses, hosts } = planned;
  return {
    family,
    quarantined: loop.quarantined,
    ...(interfaceAddresses && { interfaceAddresses }),
    ...(primaryAddress !== undefined && { primaryAddress }),
    ...(hosts.length > 0 && { hosts }),
    ...(facts && { facts }),
  };
}
