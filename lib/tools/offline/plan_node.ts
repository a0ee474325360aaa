/**
 * Plans a node from manifests, from the API server, from a dump, or from what a running process dumps.
 *
 * @module
 */
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { CLUSTER_NETWORK_POLICY } from "../../api/kinds/cluster_network_policy.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import {
  BGP_PEER,
  LOAD_BALANCER_POOL,
  ROUTING_OBJECT_KINDS,
} from "../../api/kinds/routing_objects.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { POLICY_KINDS, policySelection } from "../../app/policy/policy_settings.ts";
import { namedMode } from "../../app/run/choose_mode.ts";
import { createApiObjectSource, loadConfiguredAuth } from "../../app/run/object_source.ts";
import { nodeNameOf } from "../../app/run/start_up.ts";
import {
  ALL_NODES,
  SERVICE_KINDS,
  serviceSubscriptions,
} from "../../app/service/service_subscriptions.ts";
import {
  API_VERSION,
  effectiveConfiguration,
  KIND,
  parseConfiguration,
} from "../../config/configuration.ts";
import type { FlagValues } from "../../config/flags.ts";
import { ConfigurationError } from "../../config/configuration_error.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { validateConfiguration } from "../../config/validate.ts";
import { InformerSet, type ListOptions } from "../../kube/informer_set.ts";
import type { ObjectFinding } from "../../kube/manifests/manifest_problem.ts";
import type { ManifestFileStatus } from "../../kube/manifests/manifest_status.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import { countText } from "../../log/count_text.ts";
import { printableText } from "../../log/printable_text.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { readMemberReport } from "../../routing/layer2_member.ts";
import { askControl } from "../control/control_client.ts";
import { INPUT_PART, type InputDump } from "../dump/dump_schema.ts";
import { checkDump, DumpError, readDumpFile } from "../dump/read_dump.ts";
import { wantedFamilies } from "./wanted_families.ts";
import {
  joinedRouting,
  type PlannedNode,
  type PlanNodeDependencies,
  planObjects,
  routedSubscriptions,
} from "./planned_node.ts";

/**
 * Plans a node from manifests, the cluster or, with `--from`, a dump. Throws as
 * {@linkcode readObjectsOnce}, or a DumpError; also if this build does not have the mode, or if the mode
 * depends on the machine. With `mayMissPaths`, missing paths of several are among the problems.
 */
export async function planNode(
  dependencies: PlanNodeDependencies,
  { flags, configuration, mayMissPaths = false }: {
    readonly flags: Pick<FlagValues, "family" | "from">;
    readonly configuration: LoadedConfiguration;
    readonly mayMissPaths?: boolean;
  },
): Promise<PlannedNode> {
  const families = wantedFamilies(flags.family);
  const { relay } = configuration;
  if (flags.from !== undefined) {
    const dump = await readDumpFile(flags.from, INPUT_PART);
    return await planDump(dependencies, dump, `dump '${flags.from}'`, { families, relay });
  }
  const known = Object.keys(dependencies.backends).join(", ");
  if (configuration.mode === "auto") {
    throw new ConfigurationError([
      "Cannot render for mode 'auto': which one that is depends on the machine; name one of " +
      `${known} by --mode`,
    ]);
  }
  const mode = namedMode(configuration.mode);
  if (dependencies.backends[mode] === undefined) {
    throw new Error(`Cannot render for mode '${mode}': this release has ${known} only`);
  }
  const proxy = effectiveConfiguration(configuration.proxy, mode);
  const nodeName = nodeNameOf(proxy, dependencies.process);
  const read = await readObjectsOnce(dependencies, { configuration, nodeName, mayMissPaths });
  const planned = await planObjects(dependencies, {
    informers: read.informers,
    configuration: { relay, proxy },
    ...{ mode, nodeName, families },
  });
  const ofRouting = problemsOfRouting(proxy.routing, read.informers);
  return {
    ...planned,
    ...(proxy.routing.enabled && {
      async readRouted() {
        const kubeconfig = proxy.routing.kubeconfig;
        const { informers } = await readObjectsOnce(dependencies, {
          ...{ configuration, nodeName },
          subscriptions: routedSubscriptions({ proxy }),
          ...(kubeconfig !== "" && { kubeconfig }),
        });
        // Only a running process knows Leases and interfaces of a node.
        return { informers, networks: [] };
      },
    }),
    files: read.files,
    placed: read.placed,
    problems: [...read.problems, ...[...planned.problems, ...ofRouting].map(read.placed)],
    isIncomplete: read.isIncomplete || planned.isIncomplete || ofRouting.length > 0,
  };
}

/** Plans the node of the running process from its dump. Throws a ControlError if it does not answer. */
export async function planRunningNode(
  dependencies: PlanNodeDependencies,
  relay: LoadedConfiguration["relay"],
  families: readonly IpFamily[] = IP_FAMILIES,
): Promise<PlannedNode> {
  const source = `the dump of kube-relay at '${relay.controlSocket}'`;
  const answer = await askControl(relay.controlSocket, "/dump", { inputs: "" });
  const dump = checkDump(answer, source, INPUT_PART);
  return await planDump(dependencies, dump, source, { families, relay });
}

/** What is wrong with pools and peers of manifests. Without routing, only they themselves are judged. */
function problemsOfRouting(
  routing: LoadedConfiguration["proxy"]["routing"],
  informers: InformerSet,
): readonly ObjectFinding[] {
  const bgp = { ...routing.bgp, enabled: routing.bgp.enabled || !routing.enabled };
  const { pools, peers } = joinedRouting({ ...routing, bgp }, informers);
  return [[LOAD_BALANCER_POOL, pools] as const, [BGP_PEER, peers] as const].flatMap(
    ([{ kind }, verdicts]) =>
      [...verdicts].flatMap(([name, { problem }]): readonly ObjectFinding[] =>
        problem ? [{ ...problem, object: `${kind} ${name}`, severity: "error", value: "" }] : []
      ),
  );
}

/** Most characters of a problem, which quotes the value. */
const LONGEST_PROBLEM = 300;

/**
 * Plans the node of a dump, which errors name `source`. Families that the dump lacks are skipped; `relay` has
 * paths and other options that are not in a dump and do not matter. Throws a {@linkcode DumpError} if it is
 * contradictory or lacks all the families.
 */
export async function planDump(
  dependencies: PlanNodeDependencies,
  { mode, nodeName, objects, controllers, configuration, families: machines }: InputDump,
  source: string,
  { families, relay }: {
    readonly families: readonly IpFamily[];
    readonly relay: LoadedConfiguration["relay"];
  },
): Promise<PlannedNode> {
  const refuse = (reason: string): never => {
    throw new DumpError(`Cannot plan ${source}${reason}`);
  };
  const known = Object.keys(dependencies.backends);
  if (!known.includes(mode)) {
    refuse(` of mode '${mode}': this release has ${known.join(", ")} only`);
  }
  const byFamily = new Map(machines.map((family) => [family.family, family]));
  if (byFamily.size < machines.length) {
    refuse(": families must contain each IP family at most once");
  }
  const { length: nodes = 0 } = objects[NODE.plural] ?? [];
  if (nodes > 1) {
    refuse(
      `: objects.nodes has to contain at most one Node, that of the dump: it contains ${nodes}`,
    );
  }
  const planned = families.filter((family) => byFamily.has(family));
  if (planned.length === 0 && byFamily.size > 0) {
    const served = [...byFamily.keys()].join(" and ");
    throw new DumpError(
      `Cannot plan ${families.join(" and ")} of ${source}: ${served} is all that it serves`,
    );
  }
  const check = (problems: readonly { readonly path: unknown; readonly message: string }[]) => {
    for (const { path, message } of problems) {
      const place = Array.isArray(path) ? path.join(".") : String(path);
      const said = `configuration.proxy.${place}: ${message}`.slice(0, LONGEST_PROBLEM);
      refuse(`: ${printableText(said)}`);
    }
  };
  const parsed = parseConfiguration({
    ...configuration.proxy,
    apiVersion: API_VERSION,
    kind: KIND,
  });
  check(parsed.problems);
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
  check(validateConfiguration(proxy));
  const ofPolicies = POLICY_KINDS.filter(({ plural }) => objects[plural] !== undefined);
  const informers = filledInformers([...SERVICE_KINDS, ...ofPolicies], objects);
  const peers = informers.subscribe(NODE, ALL_NODES);
  for (const each of controllers?.["network-policy"]?.nodes ?? []) peers.upsert(each as Node);
  peers.markSynced();
  const node = await planObjects(dependencies, {
    informers,
    configuration: { proxy, relay: { ...relay, ...configuration.relay } },
    ...{ mode, nodeName, families: planned },
    machine: (family) => byFamily.get(family) ?? {},
  });
  if (!controllers?.routing) return node;
  const { objects: routed, live, reports = [], isDraining, networks } = controllers.routing;
  const readRouted = () =>
    Promise.resolve({
      informers: filledInformers([ROUTED_SERVICE, ROUTED_NODE, ...ROUTING_OBJECT_KINDS], routed),
      ...{ isDraining, networks },
      ...(live && { live: new Set(live) }),
      reports: new Map(reports.map(({ node, ...json }) => [node, readMemberReport(json)!])),
    });
  return { ...node, readRouted };
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

/** Longest time until the API server gives complete lists; a running proxy would try forever. */
const LIST_WAIT_MS = 30_000;

/**
 * Reads all objects once. Throws for an unusable kubeconfig, for a missing path of `--manifests`, and if
 * the API server gives no complete lists within 30 s.
 */
export async function readObjectsOnce(
  dependencies: Pick<PlanNodeDependencies, keyof Dependencies | "logger" | "fileSystem">,
  { configuration, nodeName, subscriptions, kubeconfig, mayMissPaths = false }: {
    readonly configuration: LoadedConfiguration;
    readonly nodeName: string;
    /** @default {those of Services and, where these are read, of policies} */
    readonly subscriptions?: ReadonlyMap<KindSpec, ListOptions>;
    /** @default {that of the configuration} */
    readonly kubeconfig?: string;
    /** Whether missing paths of `--manifests` are only reported if there are others. */
    readonly mayMissPaths?: boolean;
  },
): Promise<{
  readonly informers: InformerSet;
  /** The files of manifests. */
  readonly files: readonly ManifestFileStatus[];
  /** Adds the place of the object, if it is one of a file. */
  readonly placed: (finding: ObjectFinding) => ObjectFinding;
  readonly problems: readonly ObjectFinding[];
  /** Whether some objects could not be used. */
  readonly isIncomplete: boolean;
}> {
  const { clock } = dependencies;
  const { mode, proxy, relay: { manifests: paths, endpointsFallback } } = configuration;
  const informers = new InformerSet();
  const synced = Promise.withResolvers<void>();
  const handler = {
    onAdd: () => {},
    onUpdate: () => {},
    onDelete: () => {},
    onSynced: () => informers.synced() && synced.resolve(),
  };
  const follow = (spec: KindSpec, selection: ListOptions) =>
    informers.subscribe(spec, selection, handler);
  if (subscriptions) {
    for (const [spec, selection] of subscriptions) follow(spec, selection);
  } else {
    for (const [spec, selection] of serviceSubscriptions(nodeName, endpointsFallback)) {
      follow(spec, selection);
    }
    // An API server may have very many pods.
    if (paths.length > 0 || proxy.networkPolicy.enabled) {
      for (const spec of POLICY_KINDS) follow(spec, policySelection(spec));
    }
    if (paths.length > 0) { for (const spec of ROUTING_OBJECT_KINDS) follow(spec, {}); }
    // No Service gets an address of another Node where that would become local.
    const bindsAddresses = mode !== "auto" && MODE_TRAITS[namedMode(mode)].bindsAddresses;
    if (bindsAddresses || informers.kinds.has(CLUSTER_NETWORK_POLICY.kind)) follow(NODE, ALL_NODES);
  }
  const files = paths.length === 0
    ? undefined
    // Its log would stop after twenty problems.
    : new FileManifestSource({ ...dependencies, logger: SILENT_LOGGER }, { paths, informers });
  const server = files ? undefined : createApiObjectSource(
    dependencies,
    await loadConfiguredAuth(dependencies, configuration, kubeconfig),
    { configuration, informers },
  );
  const ending = new AbortController();
  const timer = clock.setTimer(LIST_WAIT_MS, () => {
    const reasons = server?.status().flatMap(({ name, state, problems }) =>
      problems.map((problem) =>
        `${name} (${state}): ${problem}`
      )
    ) ?? ["the manifests are being read"];
    const reason = reasons.join("; ") || "the API server is silent";
    synced.reject(new Error(`Cannot list objects within ${LIST_WAIT_MS / 1000} s: ${reason}`));
  });
  const running = (files ?? server)!.run(ending.signal);
  try {
    await Promise.race([synced.promise, running]);
    // The log has the problems of the API server's objects.
    const read = files?.status(Infinity) ?? [];
    const { path, missing } = read.find(({ missing }) => missing !== undefined) ?? {};
    // A proxy waits for the folder; here it would mean that there are no Services.
    const isFatal = !mayMissPaths || read.every(({ missing }) => missing !== undefined);
    if (missing !== undefined && isFatal) {
      throw new Error(`Cannot read manifests of '${path}': ${missing}`);
    }
    return {
      informers,
      files: read,
      placed: (finding) => ({ ...files?.placeOf(finding.object ?? ""), ...finding }),
      problems: read.flatMap(({ path: file, problems, problemsNotShown }) => [
        ...problems,
        ...furtherProblems(file, problemsNotShown),
      ]),
      isIncomplete: read.some(({ problems }) =>
        problems.some(({ severity }) => severity === "error")
      ),
    };
  } finally {
    timer.cancel();
    ending.abort();
    await running;
  }
}

function furtherProblems(
  file: string,
  counts: ManifestFileStatus["problemsNotShown"],
): readonly ObjectFinding[] {
  return (["error", "warning"] as const).filter((severity) => counts[severity] > 0).map(
    (severity) => {
      const message = countText(counts[severity], `more ${severity}`);
      return { file, line: 1, severity, path: "", value: "", message };
    },
  );
}
