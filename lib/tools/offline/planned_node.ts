import { effectiveConfiguration } from "../../config/configuration.ts";
import type { FlagValues } from "../../config/flags.ts";
import { ConfigurationError, type LoadedConfiguration } from "../../config/load.ts";
import type { ModeRequest } from "../../config/load.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { askControl } from "../control/control_client.ts";
import type { BackendTable } from "../../app/dependencies.ts";
import { INPUT_PART } from "../dump/dump_schema.ts";
import { checkDump, planDump, readDumpFile } from "../dump/read_dump.ts";
import { namedMode } from "../../app/run/choose_mode.ts";
import { nodeNameOf } from "../../app/run/start_up.ts";
import { type PlannedNode, type PlanNodeDependencies, planObjects } from "./plan_objects.ts";
import { routedSubscriptions } from "./plan_routing.ts";
import { readObjectsOnce } from "./read_objects_once.ts";

/**
 * Plans a node from manifests, the cluster or, with `--from`, a dump. Throws as
 * {@linkcode readObjectsOnce}, or a DumpError.
 */
export async function planNode(
  dependencies: PlanNodeDependencies,
  { flags, configuration }: {
    readonly flags: Pick<FlagValues, "family" | "from">;
    readonly configuration: LoadedConfiguration;
  },
): Promise<PlannedNode> {
  const families = wantedFamilies(flags.family);
  if (flags.from !== undefined) {
    const dump = await readDumpFile(flags.from, INPUT_PART);
    const { relay } = configuration;
    return await planDump(dependencies, dump, { source: `dump '${flags.from}'`, families, relay });
  }
  const mode = plannedMode(dependencies.backends, configuration.mode);
  const { relay } = configuration;
  const proxy = effectiveConfiguration(configuration.proxy, mode);
  const nodeName = nodeNameOf(proxy, dependencies.process);
  const read = await readObjectsOnce(dependencies, { configuration, nodeName });
  const planned = await planObjects(dependencies, {
    informers: read.informers,
    configuration: { relay, proxy },
    mode,
    nodeName,
    families,
  });
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
    problems: [...read.problems, ...planned.problems],
    isIncomplete: read.isIncomplete || planned.isIncomplete,
  };
}

/** Throws if this build does not have the mode, or if the mode depends on the machine. */
function plannedMode(backends: BackendTable, request: ModeRequest): BackendMode {
  const known = Object.keys(backends).join(", ");
  if (request === "auto") {
    throw new ConfigurationError([
      "Cannot render for mode 'auto': which one that is depends on the machine; name one of " +
      `${known} by --mode`,
    ]);
  }
  const mode = namedMode(request);
  if (backends[mode] !== undefined) return mode;
  throw new Error(`Cannot render for mode '${mode}': this release has ${known} only`);
}

/** The IP families that `--family` selects. */
export function wantedFamilies(word: string | undefined): readonly IpFamily[] {
  const wanted = word?.toLowerCase();
  return IP_FAMILIES.filter((family) => wanted === undefined || family.toLowerCase() === wanted);
}

/** Plans the node of the running process from its dump. Throws a ControlError if it does not answer. */
export async function planRunningNode(
  dependencies: PlanNodeDependencies,
  { relay, families = IP_FAMILIES }: {
    readonly relay: LoadedConfiguration["relay"];
    readonly families?: readonly IpFamily[];
  },
): Promise<PlannedNode> {
  const { controlSocket } = relay;
  const source = `the dump of kube-relay at '${controlSocket}'`;
  const answer = await askControl(controlSocket, "/dump", { inputs: "" });
  const dump = checkDump(answer, source, INPUT_PART);
  return await planDump(dependencies, dump, { source, families, relay });
}
