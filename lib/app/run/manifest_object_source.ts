/**
 * A folder of manifests as the source of objects.
 *
 * @module
 */
import { createManifestSource } from "../../kube/manifests/manifests.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import type { Logger } from "../../log/logger.ts";
import type { Dependencies } from "../dependencies.ts";
import type { ObjectSource, ObjectSourceOptions } from "./object_source.ts";

/** The source. */
export function createManifestObjectSource(
  { clock, logger }: Dependencies & { readonly logger: Logger },
  { configuration, nodeName, informers }: ObjectSourceOptions,
): ObjectSource {
  const paths = configuration.relay.manifests;
  const source = createManifestSource({ clock, logger }, { paths, informers, nodeName });
  return {
    run: (signal) => source.run(signal),
    status: () =>
      source.status().map(({ path, objects, problems, stale }) => ({
        name: path,
        state: `${objects} objects${stale ? ", last good state" : ""}`,
        problems: problems.map(formatProblem),
      })),
    belongsTo: () => undefined,
    ages: () => new Map(),
    repetitions: () => new Map(),
  };
}
