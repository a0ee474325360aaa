import { effectiveConfiguration } from "../../config/effective_configuration.ts";
import type { FlagValues } from "../../config/flags.ts";
import { ConfigurationError, type LoadedConfiguration } from "../../config/load.ts";
import type { ModeRequest } from "../../config/mode_request.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { namedMode } from "../run/choose_mode.ts";
import type { BackendTable } from "../dependencies.ts";
import { INPUT_PART } from "../dump/dump_schema.ts";
import { planDump } from "../dump/plan_dump.ts";
import { readDumpFile } from "../dump/read_dump.ts";
import { nodeNameOf } from "../run/node_name.ts";
import { type PlannedNode, type PlanNodeDependencies, planObjects } from "./plan_objects.ts";
import { readObjectsOnce } from "./read_objects_once.ts";

export { type PlannedNode, type PlanNodeDependencies, planObjects } from "./plan_objects.ts";

/** Which plans are wanted. */
interface PlanNodeOptions {
  readonly flags: Pick<FlagValues, "family" | "from">;
  readonly configuration: LoadedConfiguration;
}

/**
 * Reads all objects, and plans what has to hold for them. Throws as {@linkcode readObjectsOnce}, and
 * with `--from` a DumpError.
 */
export async function planNode(
  dependencies: PlanNodeDependencies,
  { flags, configuration }: PlanNodeOptions,
): Promise<PlannedNode> {
  const families = wantedFamilies(flags.family);
  if (flags.from !== undefined) {
    const dump = await readDumpFile(flags.from, { part: INPUT_PART });
    const source = `dump '${flags.from}'`;
    return await planDump(dependencies, { dump, source, families, relay: configuration.relay });
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
    problems: [...read.problems, ...planned.problems],
    isIncomplete: read.isIncomplete || planned.isIncomplete,
  };
}

/** The mode. Throws when it is not in this build, or when only the machine could tell. */
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
