/**
 * The sources of objects: an API server or a folder of manifests. Never both, because a list of one
 * would delete the objects of the other.
 *
 * @module
 */
import { acceptsProtobuf } from "../../config/configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { StatusSource } from "../../engine/controller.ts";
import { ApiSource } from "../../kube/api_source.ts";
import type { ApiAnswer, KubeClient } from "../../kube/client.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import { FileManifestSource, MANIFEST_NAME } from "../../kube/manifests/manifests.ts";
import { countText } from "../../log/count_text.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { tryParsePort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import { addressesOfHost } from "../../os/host_addresses.ts";
import { fileState } from "../../os/file_state.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { KnownHost } from "../../proxy/frontend_owners.ts";
import type { Dependencies } from "../dependencies.ts";
import { API_SERVER, hostsAt } from "../service/host_registry.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** A source of objects. */
export interface ObjectSource {
  /**
   * Feeds the informers until the signal is aborted. Rejects only if a restart could help. The client
   * stays connected until `keepOpen` resolves, also after the signal; it must not reject.
   */
  run(signal: AbortSignal, options?: { readonly keepOpen?: Promise<void> }): Promise<void>;
  /** The client of the API server, for events; absent if there is none. */
  readonly client?: KubeClient;
  /** The state of the source. */
  status(): readonly StatusSource[];
  /**
   * Of each resource of an API server, and of the connection: seconds since a sign of life, if there was
   * one, and watches that failed and lists that were repeated since the start.
   */
  figures(): readonly {
    readonly resource: string;
    readonly age: number | undefined;
    readonly repetitions?: { readonly watchFailures: number; readonly relists: number };
  }[];
}

type SourceDependencies = Pick<Dependencies, "clock" | "process" | "random"> & {
  readonly logger: Logger;
};

/**
 * Reads a kubeconfig, without one that of Services, or what stands for it: the pod's service account.
 * Throws a KubeAuthError.
 */
export async function loadConfiguredAuth(
  { clock, logger, process }: Pick<SourceDependencies, "clock" | "logger" | "process">,
  { proxy, relay: { master } }: LoadedConfiguration,
  other = "",
): Promise<KubeAuth> {
  const kubeconfig = other || proxy.clientConnection.kubeconfig;
  return await loadKubeAuth({ clock, logger }, {
    ...(kubeconfig !== "" && { kubeconfig }),
    ...(master !== undefined && { master }),
    env: process.env,
  });
}

/** Creates the source that reads from an API server. */
export function createApiObjectSource(
  { clock, logger, random }: SourceDependencies,
  auth: KubeAuth,
  { configuration: { proxy }, informers, metrics, onServer }: {
    readonly configuration: LoadedConfiguration;
    readonly informers: InformerSet;
    /** Counts each answer of an API server, and each that did not come. */
    readonly metrics?: { apiAnswered(answer: ApiAnswer): void };
    /** Called with all known addresses of the API server. @default {they are not looked up} */
    readonly onServer?: (addresses: ReadonlyMap<IpAddress, KnownHost>) => void;
  },
): ObjectSource {
  const addresses = onServer && new ServerAddresses(clock, auth.server, onServer);
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
      const state = `${connected ? "connected" : "not connected"}, ${auth.method} (${auth.source})`;
      return [
        { name: auth.server, state, problems: hint === undefined ? [] : [hint] },
        ...resources.map(({ kind, phase, relists, watchFailures, lastError }) => ({
          name: kind,
          state: `${phase}, ${relists} relists, ${watchFailures} failed watches`,
          problems: lastError === undefined ? [] : [lastError],
        })),
      ];
    },
    figures() {
      const { lastSignOfLifeMs, resources } = source.status();
      const ageOf = (at = 0) => at === 0 ? undefined : (clock.now() - at) / 1000;
      return [
        { resource: "connection", age: ageOf(lastSignOfLifeMs) },
        ...resources.map(({ plural, lastEventAtMs = 0, lastListAtMs = 0, ...repetitions }) => ({
          resource: plural,
          age: ageOf(Math.max(lastEventAtMs, lastListAtMs)),
          repetitions,
        })),
      ];
    },
  };
}

/** Folders that a node of a cluster has, and other hosts do not. */
const NODE_FOLDERS = [
  "/var/lib/rancher/k3s",
  "/var/lib/kubelet",
  "/var/lib/k0s",
  "/var/snap/microk8s",
];

/**
 * Warns if there is no file of manifests. Throws an Error on a node of a cluster: there, a start without
 * any Service has the settings of another host, as after the installation of a package.
 */
export async function admitManifests(
  { logger }: { readonly logger: Logger },
  paths: readonly string[],
  nodeFolders: readonly string[] = NODE_FOLDERS,
): Promise<void> {
  for (const path of paths) if (await holdsManifest(path)) return;
  const manifests = paths.join(", ");
  for (const folder of nodeFolders) {
    if (!await Deno.stat(folder).then(() => true, () => false)) continue;
    throw new Error(
      `Cannot start: there is no manifest in ${manifests}, and this host is a node of a cluster ` +
        `(${folder} exists), whose Services would not work; give --kubeconfig instead of ` +
        "--manifests (on k3s by the drop-in k3s.conf), or write a manifest first",
    );
  }
  logger.warn("There is no manifest yet; Services are served once there is one", { manifests });
}

/** Whether a path is a file, or a folder with one. What cannot be read is reported by the source. */
async function holdsManifest(path: string): Promise<boolean> {
  try {
    if (!(await Deno.stat(path)).isDirectory) return true;
    for await (const { name } of Deno.readDir(path)) {
      // A link may lead nowhere.
      if (MANIFEST_NAME.test(name) && await fileState(`${path}/${name}`)) return true;
    }
    return false;
  } catch (error) {
    return !(error instanceof Deno.errors.NotFound);
  }
}

/** Creates the source that reads manifests. */
export function createManifestObjectSource(
  { clock, logger }: SourceDependencies,
  paths: readonly string[],
  informers: InformerSet,
): ObjectSource {
  const source = new FileManifestSource({ clock, logger }, { paths, informers });
  return {
    run: (signal) => source.run(signal),
    status() {
      const shown = source.status().map(({ path, objects, problems, stale, unserved }) => ({
        name: path,
        state: `${countText(objects, "object")}${stale ? ", last good state" : ""}` +
          (unserved === undefined ? "" : `; not served: ${unserved}`),
        problems: problems.map(formatProblem),
      }));
      const more = source.filesNotShown;
      if (more === 0) return shown;
      const state = "not shown here; files with problems come first";
      return [...shown, { name: `${more} more files`, state, problems: [] }];
    },
    figures: () => [],
  };
}

/** Addresses that are remembered: the load balancers of a cloud get others now and then. */
const MAX_CONNECTIONS = 32;
/** Until the name is known; then it is looked up again after each new connection. */
const RETRY_MS = 5_000;

/** The addresses of the API server: those of its name, and those of connections to it. */
export class ServerAddresses {
  readonly #clock: Clock;
  readonly #onServer: (addresses: ReadonlyMap<IpAddress, KnownHost>) => void;
  readonly #lookUp: typeof addressesOfHost;
  readonly #server: URL;
  #ofName: readonly string[] = [];
  readonly #ofConnections = new Set<string>();
  readonly #wakeUp = new WakeUp();

  /** `server`: URL. `lookUp` returns the addresses of a host name. */
  constructor(
    clock: Clock,
    server: string,
    onServer: (addresses: ReadonlyMap<IpAddress, KnownHost>) => void,
    lookUp = addressesOfHost,
  ) {
    this.#clock = clock;
    this.#server = new URL(server);
    this.#onServer = onServer;
    this.#lookUp = lookUp;
  }

  /** Takes the other end of a new connection. The server may have got other addresses. */
  add(address: string): void {
    this.#ofConnections.delete(address);
    this.#ofConnections.add(address);
    const [oldest] = this.#ofConnections;
    if (this.#ofConnections.size > MAX_CONNECTIONS) this.#ofConnections.delete(oldest!);
    this.#report();
    this.#wakeUp.call();
  }

  /** Looks the name up until the signal is aborted; does not wait for a resolver then. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.race([this.#follow(signal), whenAborted(signal)]);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const name = this.#server.hostname.replace(/^\[|\]$/g, "");
    while (!signal.aborted) {
      const found = await this.#lookUp(name).catch(() => undefined);
      if (signal.aborted) return;
      if (found) {
        this.#ofName = found;
        this.#report();
      }
      await this.#wakeUp.wait(signal, found ? undefined : { clock: this.#clock, ms: RETRY_MS });
    }
  }

  #report(): void {
    const { port, protocol } = this.#server;
    const number = tryParsePort(Number(port || (protocol === "http:" ? 80 : 443)));
    const host = { owner: API_SERVER, ...(number !== undefined && { ports: [number] }) };
    this.#onServer(hostsAt([...this.#ofName, ...this.#ofConnections], host));
  }
}
