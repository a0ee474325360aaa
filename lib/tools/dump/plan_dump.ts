import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { readMemberReport } from "../../routing/layer2_member.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planObjects,
  type RoutedObjects,
} from "../offline/plan_objects.ts";
import type { DumpedRouting } from "./dump_routing.ts";
import { NODE } from "../../api/kinds/node.ts";
import { POLICY_KINDS } from "../../app/policy/policy_access.ts";
import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { API_VERSION, KIND, parseConfiguration } from "../../config/configuration.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { validateConfiguration } from "../../config/validate.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { printableText } from "../../log/printable_text.ts";
import type { InputDump } from "./dump_schema.ts";
import { DumpError } from "./read_dump.ts";

/** Most characters of a problem, which quotes the value. */
const LONGEST_PROBLEM = 300;

interface PlanDumpOptions {
  readonly dump: InputDump;
  /** The name of the dump in errors. */
  readonly source: string;
  /** The families to plan. Families that the dump lacks are skipped. */
  readonly families: readonly IpFamily[];
  /** Paths and other options that are not in a dump and do not matter. */
  readonly relay: LoadedConfiguration["relay"];
}

/** Plans the node of a dump. Throws a {@linkcode DumpError} if it is contradictory or lacks the families. */
export async function planDump(
  dependencies: PlanNodeDependencies,
  { dump, source, families, relay }: PlanDumpOptions,
): Promise<PlannedNode> {
  const { mode, nodeName } = dump;
  const known = Object.keys(dependencies.backends);
  if (!known.includes(mode)) {
    throw new DumpError(
      `Cannot plan ${source} of mode '${mode}': this release has ${known.join(", ")} only`,
    );
  }
  checkLists(dump, source);
  const machines = new Map(dump.families.map((family) => [family.family, family]));
  const planned = families.filter((family) => machines.has(family));
  if (planned.length === 0 && machines.size > 0) {
    const served = [...machines.keys()].join(" and ");
    throw new DumpError(
      `Cannot plan ${families.join(" and ")} of ${source}: ${served} is all that it serves`,
    );
  }
  const node = await planObjects(dependencies, {
    informers: informersOf(dump),
    configuration: configurationOf(dump, { source, relay }),
    mode,
    nodeName,
    families: planned,
    machine: (family) => machines.get(family) ?? {},
  });
  const routing = dump.controllers?.routing;
  return { ...node, ...(routing && { readRouted: () => Promise.resolve(routedOf(routing)) }) };
}

function routedOf(
  { objects, live, reports = [], isDraining, networks }: DumpedRouting,
): RoutedObjects {
  const informers = filledInformers([ROUTED_SERVICE, ROUTED_NODE], objects);
  return {
    ...{ informers, isDraining, networks },
    ...(live && { live: new Set(live) }),
    reports: new Map(reports.map(({ node, ...json }) => [node, readMemberReport(json)!])),
  };
}

function checkLists({ families, objects }: InputDump, source: string): void {
  const names = families.map(({ family }) => family);
  if (new Set(names).size < names.length) {
    throw new DumpError(`Cannot plan ${source}: families must contain each IP family at most once`);
  }
  const { length = 0 } = objects[NODE.plural] ?? [];
  if (length > 1) {
    throw new DumpError(
      `Cannot plan ${source}: objects.nodes has to contain at most one Node, that of the dump: it contains ${length}`,
    );
  }
}

function configurationOf(
  { configuration, controllers, mode }: InputDump,
  { source, relay }: Pick<PlanDumpOptions, "source" | "relay">,
): Pick<LoadedConfiguration, "proxy" | "relay"> {
  const refuse = (path: string, message: string) => {
    const said = `configuration.proxy.${path}: ${message}`.slice(0, LONGEST_PROBLEM);
    throw new DumpError(`Cannot plan ${source}: ${printableText(said)}`);
  };
  const parsed = parseConfiguration({
    ...configuration.proxy,
    apiVersion: API_VERSION,
    kind: KIND,
  });
  for (const { path, message } of parsed.problems) refuse(path.join("."), message);
  const given = parsed.configuration!;
  const tool = controllers?.["network-policy"]?.tool;
  const proxy = {
    ...given,
    mode,
    // Without a tool, kube-relay writes no rules.
    networkPolicy: {
      ...given.networkPolicy,
      ...(tool !== undefined && { mode: tool }),
      enabled: tool !== undefined,
    },
    routing: { ...given.routing, enabled: controllers?.routing !== undefined },
  };
  for (const { path, message } of validateConfiguration(proxy)) refuse(String(path), message);
  return { proxy, relay: { ...relay, ...configuration.relay } };
}

function informersOf({ objects }: InputDump): InformerSet {
  const ofPolicies = POLICY_KINDS.filter(({ plural }) => objects[plural] !== undefined);
  return filledInformers([...SERVICE_KINDS, ...ofPolicies], objects);
}

function filledInformers(
  kinds: readonly KindSpec[],
  objects: Readonly<Record<string, readonly KubeObject[]>>,
): InformerSet {
  const informers = new InformerSet();
  for (const spec of kinds) {
    const informer = informers.subscribe(spec);
    for (const object of objects[spec.plural] ?? []) informer.upsert(object);
    informer.markSynced();
  }
  return informers;
}
