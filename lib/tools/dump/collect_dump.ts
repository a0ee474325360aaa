/** Writes dumps: of the running process, or of a plan. */
import type * as v from "valibot";
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { ZONE_LABEL } from "../../api/labels.ts";
import { BGP_PEER, LOAD_BALANCER_POOL } from "../../api/kinds/routing_objects.ts";
import { ROUTED_NODE, type RoutedNode } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { POLICY_KINDS } from "../../app/policy/policy_settings.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import { RoutingController } from "../../app/routing/routing_controller.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "../../config/configuration.ts";
import { encodeConfiguration } from "../../config/encode_configuration.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type { RelayOptions } from "../../config/relay_options.ts";
import type {
  PeerConfiguration,
  PoolConfiguration,
  RoutingConfiguration,
  SelectorConfiguration,
} from "../../config/routing.ts";
import { VERSION } from "../../config/version.ts";
import type { FollowedKinds } from "../../engine/controller.ts";
import { DUMP_KIND } from "../../kube/manifests/manifest_objects.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { printableText } from "../../log/printable_text.ts";
import { redactText } from "../../log/redact.ts";
import { addressAt, type IpAddress, type IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { AskedHost } from "../../proxy/frontend_owners.ts";
import type { MachineFacts } from "../../proxy/service_mode.ts";
import { nodeBgpOf } from "../../routing/node_bgp.ts";
import { routingNodeOf } from "../../routing/routing_node.ts";
import type { ConfiguredPeer } from "../../routing/routing_settings.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { StatusReport } from "../status/status_report.ts";
import { DUMP_SCHEMA, foreignText, FORMAT_VERSION, plainText } from "./dump_schema.ts";

/** The parts of a dump. */
export interface DumpParts {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly configuration: { readonly proxy: KubeProxyConfiguration; readonly relay: RelayOptions };
  readonly informers: InformerSet;
  /** The kinds of policies that are followed. @default {none} */
  readonly policyKinds?: ReadonlyMap<KindSpec, FollowedKinds>;
  /** The own Node as last seen, even if it was deleted since. */
  readonly node: Node | undefined;
  readonly families: readonly {
    readonly family: IpFamily;
    readonly quarantined: readonly Quarantined[];
    /** Absent if the machine was not read. */
    readonly interfaceAddresses?: readonly IpAddress[] | undefined;
    /** The address by which the default route sends, on a host without a cluster. */
    readonly primaryAddress?: IpAddress | undefined;
    /** Machines whose addresses some ServicePort asks for. */
    readonly hosts?: readonly AskedHost[] | undefined;
    /** Absent if the machine was not read or does not matter. */
    readonly facts?: MachineFacts | undefined;
  }[];
  /** The sections of all controllers but that of Services, by name. */
  readonly controllers?: {
    readonly "network-policy"?: object | undefined;
    readonly routing?: object | undefined;
  };
  /** Absent if no kube-relay runs. */
  readonly status?: StatusReport;
  readonly changes?: ChangesReport;
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
  const { controllers = {}, policyKinds = [] } = parts;
  // Without its controller, a block has no meaning in the dump.
  const unused = defaultConfiguration();
  const { networkPolicy, routing } = configuration.proxy;
  const proxy = {
    ...configuration.proxy,
    networkPolicy: controllers["network-policy"] ? networkPolicy : unused.networkPolicy,
    routing: controllers.routing ? routing : unused.routing,
  };
  const followed = [...policyKinds, ...SERVICE_KINDS.map((spec) => [spec, informers] as const)];
  return pickAllowed({
    kind: DUMP_KIND,
    formatVersion: FORMAT_VERSION,
    writtenAt: new Date(clock.wallNow()).toISOString(),
    versions: { kubeRelay: VERSION, deno: Deno.version.deno, kernel: kernelRelease },
    mode,
    nodeName,
    configuration: { proxy: encodeConfiguration(proxy, mode), relay: configuration.relay },
    objects: {
      ...Object.fromEntries(
        followed.map(([spec, each]) => [spec.plural, [...each.of(spec).values()]]),
      ),
      // As it was last seen: rules depend on it after it was deleted, too.
      [NODE.plural]: node === undefined ? [] : [withoutForeignLabels(node)],
    },
    families: parts.families.map(({ quarantined, ...family }) => ({
      ...family,
      // Retries change the order in which a mode reports it.
      quarantined: quarantined.length === 0 ? undefined : quarantined.toSorted((left, right) => {
        const [one, other] = [left, right].map(({ key, address = "" }) => `${key} ${address}`);
        return one === other ? 0 : one! < other! ? -1 : 1;
      }),
    })),
    controllers: parts.controllers,
    status,
    changes,
  }, DUMP_SCHEMA);
}

/** The plan of Services reads one label. Policies that name nodes have a list of their own. */
function withoutForeignLabels(node: Node): Node {
  const { labels: { [ZONE_LABEL]: zone } = {}, ...metadata } = node.metadata;
  return { ...node, metadata: { ...metadata, ...(zone && { labels: { [ZONE_LABEL]: zone } }) } };
}

/** Dumps the running process; `collected` is left out where only planning needs the dump. */
export function dumpRunning(
  edges: Pick<Dependencies, "clock" | "process">,
  run: ObservedRun,
  collected: { readonly status: StatusReport; readonly changes: ChangesReport } | undefined,
): unknown {
  const { services, others, startUp, configuration, current, informers } = run;
  const nodeName = startUp.node.name;
  const policies = others.find((each) => each instanceof NetworkPolicyController);
  const routing = others.find((each) => each instanceof RoutingController);
  return collectDump({ clock: edges.clock, kernelRelease: edges.process.kernelRelease }, {
    mode: configuration.mode,
    nodeName,
    configuration: {
      relay: configuration.relay,
      proxy: !routing ? current.proxy : {
        ...current.proxy,
        routing: dumpedRoutingSettings(
          current.proxy.routing,
          routing.informers.of(ROUTED_NODE).get(nodeName),
        ),
      },
    },
    informers,
    policyKinds: new Map(
      others.flatMap(({ kinds }) => kinds).filter(({ spec }) => POLICY_KINDS.includes(spec))
        .map((kind) => [kind.spec, kind.informers ?? informers]),
    ),
    node: services.node,
    families: services.families.map(({ family, backend, services: planned, loop }) => ({
      family,
      quarantined: loop.quarantined,
      interfaceAddresses: planned.interfaceAddresses,
      primaryAddress: services.primaryAddress(family),
      hosts: planned.hosts.length > 0 ? planned.hosts : undefined,
      facts: backend.facts(),
    })),
    ...(others.length > 0 && {
      controllers: {
        "network-policy": policies && {
          tool: policies.tool,
          families: policies.families.map(({ family }) => family),
          nodes: [...policies.nodes],
        },
        routing: routing && dumpedRouting(routing),
      },
    }),
    ...collected,
  });
}

/** The section of routing: what its plan is made from besides settings. */
export function dumpedRouting(
  { bgp, informers, layer2, networks, objects }:
    & Pick<RoutingController, "informers" | "networks">
    & {
      readonly objects?: Pick<NonNullable<RoutingController["objects"]>, "used"> | undefined;
      readonly bgp?: Pick<NonNullable<RoutingController["bgp"]>, "isDraining"> | undefined;
      readonly layer2?:
        | Pick<NonNullable<RoutingController["layer2"]>, "live" | "reports">
        | undefined;
    },
): object {
  const { live, reports } = layer2 ?? {};
  return {
    objects: {
      [ROUTED_SERVICE.plural]: [...informers.of(ROUTED_SERVICE).values()],
      [ROUTED_NODE.plural]: [...informers.of(ROUTED_NODE).values()],
      ...(objects && dumpedObjects(objects.used)),
    },
    live: live && [...live].sort(),
    reports: reports && [...reports].map(([node, { json }]) => ({ node, ...json })),
    isDraining: bgp?.isDraining ?? false,
    networks,
  };
}

/** The versions of objects that are used. */
function dumpedObjects(
  { pools, peers }: NonNullable<RoutingController["objects"]>["used"],
): Readonly<Record<string, readonly KubeObject[]>> {
  const file = { passwordFile: PASSWORD_FILE };
  return {
    [LOAD_BALANCER_POOL.plural]: pools,
    [BGP_PEER.plural]: peers.map((peer) => ({
      ...peer,
      spec: { ...peer.spec, ...(peer.spec.passwordFile && file) },
    })),
  };
}

/** Names no file: the configuration needs one, and whether there is a password matters. */
const PASSWORD_FILE = "/password-is-not-in-the-dump";

/**
 * The settings as they are dumped: pools and peers that were given as text become fields. The peers of
 * the own Node's annotation are among them, because the annotation may hold passwords.
 */
export function dumpedRoutingSettings(
  routing: RoutingConfiguration,
  own: RoutedNode | undefined,
): RoutingConfiguration {
  const { pools, bgp } = routingSettingsOf({ ...routing, bgp: { ...routing.bgp, enabled: true } });
  const { peers, nodeAnnotations } = bgp!;
  const annotated = own && nodeAnnotations ? nodeBgpOf(routingNodeOf(own)).bgp.peers : [];
  const names = new Set(peers.flatMap(({ name, address, port }) => [name, `${address} ${port}`]));
  const others = annotated.filter(({ name, address, port }) =>
    !names.has(name) && !names.has(`${address} ${port}`)
  );
  return {
    ...routing,
    pools: pools.map(({ name, ranges, autoAssign, priority = 0, announce }) => ({
      ...{ name, autoAssign, priority, announce },
      addresses: ranges.map(({ family, first, last }) =>
        `${addressAt(first, family)}-${addressAt(last, family)}`
      ),
      ...selectorsOf(routing.pools.find((pool) => typeof pool !== "string" && pool.name === name)),
    })),
    bgp: {
      ...routing.bgp,
      peers: [
        ...peers.map((peer, index) => dumpedPeer(peer, routing.bgp.peers[index])),
        ...others.map((peer) => dumpedPeer(peer, undefined)),
      ],
    },
  };
}

function dumpedPeer(
  { passwordFile, nodeSelector: _, ...peer }: ConfiguredPeer,
  given: string | PeerConfiguration | undefined,
) {
  return {
    localAddress: "",
    multihopTtl: 0,
    gracefulRestartSeconds: 0,
    ...{ bothFamilies: false, otherNextHop: "" },
    ...peer,
    passwordFile: passwordFile === undefined ? "" : PASSWORD_FILE,
    ...selectorsOf(given),
  };
}

/** A selector that is `null` selects everything, as an absent one does. */
function selectorsOf(
  given: string | PoolConfiguration | PeerConfiguration | undefined,
): Readonly<Record<string, SelectorConfiguration>> {
  if (typeof given !== "object") return {};
  const { namespaceSelector, serviceSelector, nodeSelector } = given as Partial<PoolConfiguration>;
  return {
    ...(namespaceSelector && { namespaceSelector }),
    ...(serviceSelector && { serviceSelector }),
    ...(nodeSelector && { nodeSelector }),
  };
}

interface SchemaShape {
  readonly type: string;
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly item?: v.GenericSchema;
  readonly wrapped?: v.GenericSchema;
  readonly value?: v.GenericSchema;
}

/** Longer lists are copied while they are iterated. */
const SHORT = 64;

/**
 * Copies the fields that the schema names. Unlike parsing it refuses nothing: a damaged node must be able
 * to write a dump. Omits values of another type.
 */
export function pickAllowed(value: unknown, schema: v.GenericSchema): unknown {
  const { type, entries, item, wrapped, value: inner } = schema as unknown as SchemaShape;
  if (value === null || value === undefined) return value;
  if (type === "union") return pickScalar(value);
  if (wrapped) return pickAllowed(value, wrapped);
  if (item) return pickList(value, item);
  if (inner) {
    const rows = Object.entries(value as object);
    return Object.fromEntries(rows.map(([name, each]) => [name, pickAllowed(each, inner)]));
  }
  if (entries) {
    const picked: Record<string, unknown> = {};
    for (const name of Object.keys(entries)) {
      const given = (value as Readonly<Record<string, unknown>>)[name];
      if (given !== undefined) picked[name] = pickAllowed(given, entries[name]!);
    }
    return picked;
  }
  if (typeof value === "object") return undefined;
  if (typeof value !== "string") return value;
  // Text that reading would refuse is made printable: one odd field must not make the dump useless.
  if (schema === foreignText) return redactText(value);
  return schema === plainText ? printableText(value) : value;
}

/** Copies a number, a flag or text, or a list of these. */
function pickScalar(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((each) => typeof each !== "object").map(pickScalar);
  if (typeof value === "string") return printableText(value);
  return typeof value === "object" ? undefined : value;
}

function pickList(value: unknown, item: v.GenericSchema): unknown {
  if (typeof value !== "object" || value === null || !(Symbol.iterator in value)) return undefined;
  const source = value as Iterable<unknown>;
  if (Array.isArray(source) && source.length <= SHORT) {
    return source.map((entry) => pickAllowed(entry, item));
  }
  function* entries(): Generator<unknown> {
    for (const entry of source) yield pickAllowed(entry, item);
  }
  return { [Symbol.iterator]: entries, toJSON: () => [...entries()] };
}
