/**
 * The edges that `main.ts` hands down.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import type { CommandRunner } from "../os/command_runner.ts";
import type { Network, SocketAddress } from "../os/network.ts";
import type { OpenFiles } from "../os/open_files.ts";
import type { RelayWorkers, SpawnWorker } from "../os/worker_pool.ts";
import type { Terminal } from "../os/terminal.ts";
import type { UncaughtErrors } from "../os/uncaught_errors.ts";
import type { ConnectionJudge } from "../policy/connection_judge.ts";
import type { Backend, BackendMode } from "../proxy/backend.ts";
import type { HostChecks } from "../proxy/host_checks.ts";
import type { StartPacketWatch } from "../proxy/packet_trace.ts";
import type { EndpointHealthChange, MachineFacts } from "../proxy/service_mode.ts";
import type { FamilyTraffic } from "../proxy/service_traffic.ts";
import type {
  IptablesConfiguration,
  IpvsConfiguration,
  KubeProxyConfiguration,
  NftablesConfiguration,
} from "../config/configuration.ts";
import type { FlagValues } from "../config/flags.ts";
import type { LoadedConfiguration, RelayOptions } from "../config/load.ts";
import type { ModeRequest } from "../config/load.ts";
import type { PolicyBackendTable } from "./policy/policy_backend.ts";
import type { DriftFigures } from "../metrics/proxy_metrics.ts";
import type { RoutingBackends } from "./routing/routing_backends.ts";
import type { DataPlaneEdges } from "../engine/data_plane.ts";

/** The machine and the process, as far as the application asks for them. */
export interface Dependencies {
  readonly clock: Clock;
  readonly network: Network;
  readonly commands: CommandRunner;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  readonly process: ProcessInfo;
  readonly backends: BackendTable;
  /** The data planes of NetworkPolicy. @default {none: none is enforced} */
  readonly policyBackends: PolicyBackendTable;
  /** The data planes of addresses and routes. @default {none: none is announced} */
  readonly routingBackends?: RoutingBackends;
  readonly hostChecks: HostChecks;
  /** Start a watch for one packet, in the modes that use rules of the kernel. @default {not at all} */
  readonly packetTraces?: Readonly<Partial<Record<BackendMode, StartPacketWatch>>>;
  /** Turns the output of libraries into log lines of a serving process. @default {it is printed} */
  readonly takeStrayOutput?: (logger: Logger) => void;
  /**
   * Handles errors that no other code caught while Services are served. @default {it ends the
   * process}
   */
  readonly uncaught?: UncaughtErrors;
  /** Starts a thread that forwards connections. @default {the main thread forwards them} */
  readonly spawnWorker?: SpawnWorker;
  /** The command line of a data process, without its arguments. @default {there are none} */
  readonly dataProgram?: readonly string[];
  /** Opens the terminal for a live view; absent if there is certainly none. */
  readonly openTerminal?: () => Terminal;
  /** Writes to standard output. */
  readonly print: (text: string) => void;
  /** Writes to standard error. */
  readonly complain: (text: string) => void;
}

/** The configuration of a run, and the choices made from it on this host. */
export type RunConfiguration = LoadedConfiguration & {
  readonly mode: BackendMode;
  /** The requested mode. @default the mode itself */
  readonly requestedMode?: ModeRequest;
  readonly families: readonly IpFamily[];
  /** Flags as they were given. */
  readonly flags: FlagValues;
};

/** The effective configuration: the file may have changed since the start. */
export interface CurrentConfiguration {
  readonly proxy: KubeProxyConfiguration;
}

/** Facts about the process. */
export interface ProcessInfo {
  readonly pid: number;
  readonly uid: number | undefined;
  readonly hostname: string;
  /** Cores that it may use. @default {1} */
  readonly cores?: number;
  /** The output of `uname -r`; absent if not read. */
  readonly kernelRelease?: string;
  readonly env: (name: string) => string | undefined;
  readonly stdoutIsTerminal: boolean;
  /** @default {false} */
  readonly stderrIsTerminal?: boolean;
  /** Columns of the terminal; 80 without a terminal. */
  readonly columns: number;
}

/** The dependencies of a backend. */
export interface BackendDependencies extends DataPlaneEdges {
  readonly network: Network;
  /** Limits of open files. @default {the usual limits, for this backend alone} */
  readonly openFiles?: OpenFiles;
  /** Threads that forward connections. @default {the main thread does} */
  readonly workers?: RelayWorkers | undefined;
  /** Called when objects of kube-relay were found missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
  /** Called when endpoints became unhealthy, were ejected, or returned. */
  readonly onHealth?: (changes: readonly EndpointHealthChange[]) => void;
}

/** Settings that some backend reads. */
export interface BackendOptions {
  readonly family: IpFamily;
  readonly relay: RelayOptions;
  readonly iptables: IptablesConfiguration;
  readonly ipvs: IpvsConfiguration;
  readonly nftables: NftablesConfiguration;
  /** The facts of a machine, for a backend that is not started there. @default {everything} */
  readonly facts?: MachineFacts;
  /** Counts the traffic of each Service; absent = it is not counted. */
  readonly traffic?: FamilyTraffic;
  /** TCP listeners that reveal more to local clients than to remote ones. @default {[]} */
  readonly localListeners?: readonly SocketAddress[];
  /** Judges what a backend relays by NetworkPolicies. @default {everything is allowed} */
  readonly judge?: ConnectionJudge;
}

/** The modes that this build has, and how their backends are made. */
export type BackendTable = Readonly<
  Partial<
    Record<
      BackendMode,
      (dependencies: BackendDependencies, options: BackendOptions) => Backend
    >
  >
>;
