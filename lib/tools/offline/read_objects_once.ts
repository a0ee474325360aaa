import type { KindSpec } from "../../api/kind.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { InformerSet, type ListOptions } from "../../kube/informer_set.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import type { Logger } from "../../log/logger.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { createApiObjectSource, loadConfiguredAuth } from "../../app/run/object_source.ts";
import { POLICY_KINDS } from "../../app/policy/policy_settings.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { NODE } from "../../api/kinds/node.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { namedMode } from "../../app/run/choose_mode.ts";
import { ALL_NODES, serviceSubscriptions } from "../../app/service/service_subscriptions.ts";

/** Longest time until the API server gives complete lists; a running proxy would try forever. */
const LIST_WAIT_MS = 30_000;

interface ReadObjects {
  readonly informers: InformerSet;
  /** Problems of the objects, one line each. */
  readonly problems: readonly string[];
  /** Whether some objects could not be used. */
  readonly isIncomplete: boolean;
}

interface ReadObjectsOptions {
  readonly configuration: LoadedConfiguration;
  readonly nodeName: string;
  /** @default {those of Services and, where these are read, of policies} */
  readonly subscriptions?: ReadonlyMap<KindSpec, ListOptions>;
  /** @default {that of the configuration} */
  readonly kubeconfig?: string;
}

interface OnceSource {
  run(signal: AbortSignal): Promise<void>;
  /** The reason of a delay. */
  hindrance(): string;
  found(): Omit<ReadObjects, "informers">;
}

/**
 * Reads all objects once. Throws for an unusable kubeconfig, for a missing path of `--manifests`, and if
 * the API server gives no complete lists within 30 s.
 */
export async function readObjectsOnce(
  dependencies: Dependencies & { readonly logger: Logger },
  options: ReadObjectsOptions,
): Promise<ReadObjects> {
  const { clock } = dependencies;
  const synced = Promise.withResolvers<void>();
  const informers = createInformers(options, synced.resolve);
  const source = await openSource(dependencies, { ...options, informers });
  const ending = new AbortController();
  const timer = clock.setTimer(LIST_WAIT_MS, () => {
    const waited = `${LIST_WAIT_MS / 1000} s`;
    synced.reject(new Error(`Cannot list objects within ${waited}: ${source.hindrance()}`));
  });
  const running = source.run(ending.signal);
  try {
    await Promise.race([synced.promise, running]);
    return { informers, ...source.found() };
  } finally {
    timer.cancel();
    ending.abort();
    await running;
  }
}

function createInformers(options: ReadObjectsOptions, onAllSynced: () => void): InformerSet {
  const informers = new InformerSet();
  const handler = {
    onAdd: () => {},
    onUpdate: () => {},
    onDelete: () => {},
    onSynced: () => informers.synced() && onAllSynced(),
  };
  for (const [spec, selection] of options.subscriptions ?? subscriptionsOf(options)) {
    informers.subscribe(spec, selection, handler);
  }
  const { mode } = options.configuration;
  // No Service gets an address of another Node where that would become local.
  if (!options.subscriptions && mode !== "auto" && MODE_TRAITS[namedMode(mode)].bindsAddresses) {
    informers.subscribe(NODE, ALL_NODES, handler);
  }
  return informers;
}

/** The kinds that Services and, where these are read, policies are planned from. */
function subscriptionsOf(
  { configuration, nodeName }: ReadObjectsOptions,
): ReadonlyMap<KindSpec, ListOptions> {
  const { endpointsFallback, manifests } = configuration.relay;
  // An API server may have very many pods.
  const hasPolicies = manifests.length > 0 || configuration.proxy.networkPolicy.enabled;
  return new Map<KindSpec, ListOptions>([
    ...serviceSubscriptions(nodeName, endpointsFallback),
    ...(hasPolicies ? POLICY_KINDS : []).map((spec) => [spec, {}] as const),
  ]);
}

async function openSource(
  dependencies: Dependencies & { readonly logger: Logger },
  options: ReadObjectsOptions & { readonly informers: InformerSet },
): Promise<OnceSource> {
  const paths = options.configuration.relay.manifests;
  if (paths.length > 0) return openManifests(dependencies, { ...options, paths });
  const auth = await loadConfiguredAuth(dependencies, options.configuration);
  const source = createApiObjectSource(dependencies, auth, options);
  return {
    run: (signal) => source.run(signal),
    hindrance: () => {
      const reasons = source.status().flatMap(({ name, state, problems }) =>
        problems.map((problem) => `${name} (${state}): ${problem}`)
      );
      return reasons.join("; ") || "the API server is silent";
    },
    // The log has the problems.
    found: () => ({ problems: [], isIncomplete: false }),
  };
}

function openManifests(
  { clock }: Dependencies,
  { paths, informers }: ReadObjectsOptions & {
    readonly informers: InformerSet;
    readonly paths: readonly string[];
  },
): OnceSource {
  // Its log would stop after twenty problems.
  const source = new FileManifestSource({ clock, logger: SILENT_LOGGER }, { paths, informers });
  return {
    run: (signal) => source.run(signal),
    hindrance: () => "the manifests are being read",
    found() {
      const files = source.status();
      const { path, missing } = files.find(({ missing }) => missing !== undefined) ?? {};
      // A proxy waits for the folder; here it would mean that there are no Services.
      if (missing !== undefined) throw new Error(`Cannot read manifests of '${path}': ${missing}`);
      return {
        problems: files.flatMap(({ path, problems, problemsNotShown }) => [
          ...problems.map(formatProblem),
          ...(problemsNotShown > 0 ? [`${path}: ${problemsNotShown} more problems`] : []),
        ]),
        isIncomplete: files.some(({ problems }) =>
          problems.some(({ severity }) => severity === "error")
        ),
      };
    },
  };
}
