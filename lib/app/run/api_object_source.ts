import { featureEnabled } from "../../config/feature_gates.ts";
import { acceptsProtobuf } from "../../config/content_types.ts";
import { ApiSource } from "../../kube/api_source.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import type { Logger } from "../../log/logger.ts";
import { ServerAddresses } from "./server_addresses.ts";
import type { Dependencies } from "../dependencies.ts";
import type { ObjectSource, ObjectSourceOptions } from "./object_source.ts";
import type { StatusSource } from "../../engine/controller.ts";

/** Reads the kubeconfig, or what stands for it. Throws a KubeAuthError. */
export async function loadConfiguredAuth(
  { clock, logger, process }: Pick<Dependencies, "clock" | "process"> & { readonly logger: Logger },
  { configuration, kubeconfig }: Pick<ObjectSourceOptions, "configuration" | "kubeconfig">,
): Promise<KubeAuth> {
  const { proxy, relay: { master } } = configuration;
  const path = kubeconfig ?? proxy.clientConnection.kubeconfig;
  return await loadKubeAuth({ clock, logger }, {
    ...(path !== "" && { kubeconfig: path }),
    ...(master !== undefined && { master }),
    env: process.env,
  });
}

/** Creates the source. Throws what reading the kubeconfig throws. */
export async function createApiObjectSource(
  dependencies: Dependencies & { readonly logger: Logger },
  options: ObjectSourceOptions,
): Promise<ObjectSource> {
  const { clock, logger, random } = dependencies;
  const { configuration: { proxy }, informers, metrics, onServer } = options;
  const auth = options.auth ?? await loadConfiguredAuth(dependencies, options);
  const addresses = onServer && new ServerAddresses({ clock }, { server: auth.server, onServer });
  const source = new ApiSource({ clock, logger, random, auth }, {
    informers,
    streamingLists: featureEnabled(proxy, "WatchListClient"),
    protobuf: acceptsProtobuf(proxy.clientConnection),
    ...(metrics && { onAnswer: (answer) => metrics.apiAnswered(answer) }),
    ...(addresses && { onPeer: (address) => addresses.add(address) }),
  });
  return {
    client: source.client,
    async run(signal, options) {
      await Promise.all([addresses?.run(signal), source.run(signal, options)]);
    },
    status() {
      const { auth, connected, hint, resources } = source.status();
      const connection: StatusSource = {
        name: auth.server,
        state: `${connected ? "connected" : "not connected"}, ${auth.method} (${auth.source})`,
        problems: hint === undefined ? [] : [hint],
      };
      return [
        connection,
        ...resources.map(({ kind, phase, relists, watchFailures, lastError }) => ({
          name: kind,
          state: `${phase}, ${relists} relists, ${watchFailures} failed watches`,
          problems: lastError === undefined ? [] : [lastError],
        })),
      ];
    },
    repetitions() {
      return new Map(source.status().resources.map((resource) => [resource.plural, resource]));
    },
    ages() {
      const { lastSignOfLifeMs, resources } = source.status();
      const ages = new Map<string, number>();
      const note = (name: string, at: number | undefined) => {
        if (at !== undefined) ages.set(name, (clock.now() - at) / 1000);
      };
      note("connection", lastSignOfLifeMs);
      for (const { plural, lastEventAtMs, lastListAtMs } of resources) {
        note(plural, Math.max(lastEventAtMs ?? 0, lastListAtMs ?? 0) || undefined);
      }
      return ages;
    },
  };
}
