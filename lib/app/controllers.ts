import type { Controller } from "../engine/controller.ts";
import type { CleanupReport } from "../engine/data_plane.ts";
import type { ControllerName } from "../engine/loop_id.ts";
import type { SyncListener } from "../engine/sync_event.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { ProxyHealth } from "../health/proxy_health.ts";
import type { InformerSet } from "../kube/informer_set.ts";
import type { Logger } from "../log/logger.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { ProxyMetrics } from "../metrics/proxy_metrics.ts";
import type { OpenFiles } from "../os/open_files.ts";
import type { KnownHost } from "../proxy/frontend_owners.ts";
import type { ChangeListener, ServiceSyncListener } from "./change_listener.ts";
import type { CurrentConfiguration, Dependencies, RunConfiguration } from "./dependencies.ts";
import type { ConnectionJudge } from "../policy/connection_judge.ts";
import type { ObjectSource } from "./run/object_source.ts";
import type { StartUp } from "./run/start_up.ts";

/** The objects that all controllers of a run share. */
export interface ControllerParts extends Dependencies {
  readonly logger: Logger;
  readonly openFiles: OpenFiles;
  readonly configuration: RunConfiguration;
  /** The effective configuration: the file may have changed since the start. */
  readonly current: CurrentConfiguration;
  readonly nodeName: string;
  readonly informers: InformerSet;
  /** Each controller gives them to its loops. */
  readonly listeners: readonly SyncListener[];
  readonly source: Pick<ObjectSource, "client">;
  /** What `status` reports of sources. A controller adds its own when it is made. */
  readonly sources: Pick<ObjectSource, "status">[];
  readonly startUp: StartUp;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  readonly changes: ChangeListener;
  readonly controllerOfServices: {
    /** Asks for a sync, which tries what is in quarantine again. */
    requestSync(family: IpFamily): void;
    /** Replaces the machines of a source that this node has to reach; see {@linkcode KnownHost}. */
    setHosts(source: string, hosts: ReadonlyMap<IpAddress, KnownHost>): void;
  };
  /** Called for each sync of Services, in this order. A controller adds its own when it is made. */
  readonly serviceListeners: ServiceSyncListener[];
  /** Judge what the mode of Services relays by NetworkPolicies. */
  readonly judges: ReadonlyMap<IpFamily, ConnectionJudge>;
}

/** Creates a controller, and removes its objects from the machine. */
export interface ControllerDefinition {
  readonly name: ControllerName;
  isEnabled(configuration: RunConfiguration): boolean;
  create(parts: ControllerParts): Controller;
  /**
   * Removes everything that any run of it added to the machine, and nothing else; needs no cluster.
   * A dry run removes nothing.
   */
  cleanUp(
    dependencies: Dependencies & { readonly logger: Logger },
    configuration: LoadedConfiguration,
  ): AsyncIterable<CleanupReport>;
}
