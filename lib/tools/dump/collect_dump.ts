import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
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
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { type Frontend, masqueradeExternal } from "../../proxy/frontend.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { assertNever, type Verdict } from "../../proxy/verdict.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import { VERSION } from "../../config/version.ts";
import type { ControllerTools } from "../control/controller_tools.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { ServiceFamily } from "../../app/service/services.ts";
import type { ServiceController } from "../../app/service/service_controller.ts";
import { reasonsByKey } from "../../app/service/service_status.ts";
import type { StatusReport } from "../status/status_report.ts";
import {
  DUMP_SCHEMA,
  type DumpInput,
  FORMAT_VERSION,
  INPUT_PART,
  withControllers,
} from "./dump_schema.ts";
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
  /** Omits decisions, status and changes, which planning does not need. @default {false} */
  readonly onlyInputs?: boolean;
}

export interface DumpedFamily {
  readonly family: IpFamily;
  readonly plan: ProxyPlan;
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
 * Makes a dump for `jsonPieces()`. Long lists are made while they are written; their objects and plans are
 * chosen now, so that later changes are not half in it.
 */
export function collectDump(
  { clock, kernelRelease }: {
    readonly clock: Clock;
    readonly kernelRelease: string | undefined;
  },
  parts: DumpParts,
): unknown {
  const { mode, nodeName, configuration, informers, node, status, changes, onlyInputs } = parts;
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
  const dump: DumpInput = {
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
  const schema = onlyInputs ? INPUT_PART : DUMP_SCHEMA;
  if (controllers.length === 0) return pickAllowed(dump, schema);
  const values = Object.fromEntries([...sections].map(([name, { value }]) => [name, value]));
  return pickAllowed(
    { ...dump, controllers: values },
    withControllers(schema, { kinds, sections }),
  );
}

function dumpFamily({ plan, quarantined, ...family }: DumpedFamily) {
  const plans = [...plan.services.values()];
  const reasons = reasonsByKey(quarantined);
  return {
    ...family,
    // Retries change the order in which a mode reports it.
    ...(quarantined.length > 0 && { quarantined: quarantined.toSorted(byKeyAndAddress) }),
    decisions: {
      *[Symbol.iterator]() {
        for (const plan of plans) yield dumpDecision(plan, reasons.get(plan.key));
      },
    },
  };
}

function byKeyAndAddress(left: Quarantined, right: Quarantined): number {
  const [one, other] = [left, right].map(({ key, address = "" }) => `${key} ${address}`);
  return one === other ? 0 : one! < other! ? -1 : 1;
}

type DumpDecision = DumpInput["families"] extends Iterable<
  { readonly decisions: Iterable<infer Decision> }
> ? Decision
  : never;

/** Most endpoints of a verdict that are named; the slices have all. */
const MOST_NAMED = 16;

const MASQUERADE: Readonly<Record<Frontend["masquerade"], string>> = {
  "all": "all traffic",
  "from-node": "traffic of the node itself",
  "off-cluster": "traffic from outside of the cluster",
  "none": "nothing",
};

/** The decision for a ServicePort; `reason`: why it, or an address of it, is in quarantine. */
function dumpDecision(plan: ServicePlan, reason: string | undefined): DumpDecision {
  return {
    servicePort: plan.key,
    internal: verdictText(plan.internal),
    external: verdictText(plan.external),
    externalFromCluster: verdictText(plan.externalFromCluster),
    masqueradeInternal: MASQUERADE[plan.masqueradeInternal],
    masqueradeExternal: MASQUERADE[masqueradeExternal(plan)],
    ...(reason !== undefined && { quarantined: reason }),
  };
}

function verdictText(verdict: Verdict): string {
  switch (verdict.kind) {
    case "forward": {
      const { endpoints } = verdict;
      const named = endpoints.slice(0, MOST_NAMED).map(({ key }) => key).join(" ");
      const more = endpoints.length - MOST_NAMED;
      return `forward to ${named}${more > 0 ? ` and ${more} more` : ""}`;
    }
    case "reject":
      return "refuse";
    case "drop":
      return "drop: no endpoint on this node, as the traffic policy asks for";
    default:
      return assertNever(verdict);
  }
}

/** Dumps the running process. Without `collected` the dump has only what planning needs. */
export function dumpRunning(
  edges: Pick<Dependencies, "clock" | "network" | "process">,
  run: ObservedRun & { toolsOf(controller: Controller): Pick<ControllerTools, "dumped"> },
  collected: { readonly status: StatusReport; readonly changes: ChangesReport } | undefined,
): unknown {
  const { services, others, startUp, configuration, current, informers, toolsOf } = run;
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
      return { name, kinds, section: toolsOf(each).dumped() };
    }),
    ...(collected ?? { onlyInputs: true }),
  });
}

function familyOf(
  { family, backend, services: planned, loop }: ServiceFamily,
  services: Pick<ServiceController, "primaryAddress">,
): DumpedFamily {
  const facts = backend.facts();
  const primaryAddress = services.primaryAddress(family);
  const { plan, interfaceAddresses, hosts } = planned;
  return {
    family,
    plan,
    quarantined: loop.quarantined,
    ...(interfaceAddresses && { interfaceAddresses }),
    ...(primaryAddress !== undefined && { primaryAddress }),
    ...(hosts.length > 0 && { hosts }),
    ...(facts && { facts }),
  };
}
