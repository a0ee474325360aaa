import type { LoadedConfiguration } from "../../config/load.ts";
import type { StatusSource } from "../../engine/controller.ts";
import type { ApiAnswer, KubeClient } from "../../kube/client.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { KnownHost } from "../../proxy/known_hosts.ts";

/** A source of objects. */
export interface ObjectSource {
  /** Feeds the informers until the signal is aborted. Rejects only if a restart could help. */
  run(signal: AbortSignal, options?: SourceRunOptions): Promise<void>;
  /** The client of the API server, for events; absent if there is none. */
  readonly client?: KubeClient | undefined;
  /** The state of the source. */
  status(): readonly StatusSource[];
  /** Seconds since a sign of life, by resource; empty for manifests. */
  ages(): ReadonlyMap<string, number>;
  /** Repetitions since the start, by resource; empty for manifests. */
  repetitions(): ReadonlyMap<string, SourceRepetitions>;
}

/** Settings of a run. */
export interface SourceRunOptions {
  /** The client stays connected until this resolves, also after the signal. Must not reject. */
  readonly keepOpen?: Promise<void>;
}

/** Repetitions for one resource. */
export interface SourceRepetitions {
  /** Watches that failed. */
  readonly watchFailures: number;
  /** Repeated lists. */
  readonly relists: number;
}

/** Options of a source. */
export interface ObjectSourceOptions {
  readonly configuration: LoadedConfiguration;
  readonly informers: InformerSet;
  /** Another kubeconfig; empty = the service account. @default {that of the configuration} */
  readonly kubeconfig?: string;
  /** The content of the kubeconfig, if it was read before. @default {it is read} */
  readonly auth?: KubeAuth | undefined;
  /** Counts each answer of an API server, and each that did not come. */
  readonly metrics?: { apiAnswered(answer: ApiAnswer): void };
  /** Called with all known addresses of the API server. @default {they are not looked up} */
  readonly onServer?: ((addresses: ReadonlyMap<IpAddress, KnownHost>) => void) | undefined;
}
