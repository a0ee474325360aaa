/**
 * Provides the Services of the startup benchmark: a folder of manifests, or the real API machinery
 * of `tests/apiserver`.
 *
 * @module
 */
import { buildApiserver } from "../conformance/build_apiserver.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { writeKubeconfig } from "../support/builders/kubeconfig_file.ts";
import { type BenchService, serviceObjects, writeServiceManifest } from "./service_manifest.ts";

/** A source of Services that kube-relay can be started on. */
export interface ObjectFeed extends AsyncDisposable {
  /** Flags that lead kube-relay to it. */
  readonly flags: readonly string[];
  /** Changes one Service and its slice. */
  update(service: BenchService): Promise<void>;
}

/** Makes a feed of these Services; `folder` is the feed's own. */
export type CreateFeed = (
  folder: string,
  services: readonly BenchService[],
) => Promise<ObjectFeed>;

/** A folder with one file for each Service. */
export async function createFolderFeed(
  folder: string,
  services: readonly BenchService[],
): Promise<ObjectFeed> {
  const manifests = `${folder}/manifests`;
  await Deno.mkdir(manifests, { recursive: true });
  const write = async (service: BenchService) => {
    const path = `${manifests}/${service.name}.yaml`;
    await Deno.writeTextFile(`${path}.new`, writeServiceManifest(service));
    await Deno.rename(`${path}.new`, path);
  };
  for (const service of services) await write(service);
  return {
    flags: [`--manifests=${manifests}`],
    update: write,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** The real API machinery, filled. Throws when its program can't be built. */
export async function createApiFeed(
  folder: string,
  services: readonly BenchService[],
): Promise<ObjectFeed> {
  const program = await buildApiserver();
  if (program === undefined) throw new Error("Cannot build tests/apiserver: Go is missing");
  await Deno.mkdir(folder, { recursive: true });
  const machinery = await startApiMachinery({ program });
  const objects = services.flatMap(serviceObjects);
  await machinery.admin.createAll(objects);
  const kubeconfig = `${folder}/kubeconfig`;
  await writeKubeconfig(kubeconfig, {
    server: machinery.url,
    ca: machinery.ca,
    user: { token: machinery.token() },
  });
  return {
    flags: [`--kubeconfig=${kubeconfig}`],
    async update(service) {
      await machinery.update(serviceObjects(service)[1]);
    },
    [Symbol.asyncDispose]: () => machinery[Symbol.asyncDispose](),
  };
}
