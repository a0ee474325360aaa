/**
 * kube-proxy's configuration (`kubeproxy.config.k8s.io/v1alpha1`, the only version) with every value
 * parsed and every default filled in.
 *
 * Contains every field of upstream, including those without effect here, because files made by
 * kubeadm name them all. `networkPolicy` and `routing` are extensions.
 *
 * @module
 */
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../proxy/backend.ts";
import type { ConntrackLimits } from "../proxy/conntrack_settings.ts";
import type { NetworkPolicyConfiguration } from "./network_policy.ts";
import type { RoutingConfiguration } from "./routing.ts";

/** `apiVersion` of the only version. */
export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";

/** `kind` of the configuration. */
export const KIND = "KubeProxyConfiguration";

/** The interval at which a mode writes its rules, in milliseconds. */
export interface SyncPeriods {
  /** Longest time between two full syncs, and the base of the health timeout. */
  readonly syncPeriod: number;
  /** Shortest time from the end of a sync to the next one; 0 = none. */
  readonly minSyncPeriod: number;
}

/** The connection to the API server. */
interface ClientConnection {
  /** Path of the kubeconfig; empty = the service account of the pod. */
  readonly kubeconfig: string;
  readonly acceptContentTypes: string;
  readonly contentType: string;
  /** Requests per second; negative = unlimited. */
  readonly qps: number;
  readonly burst: number;
}

/** Buffering of one log format; accepted, without effect. */
interface LogFormatOptions {
  readonly splitStream: boolean;
  /** A Kubernetes quantity. */
  readonly infoBufferSize: string;
}

/** Logging. */
export interface LoggingConfiguration {
  readonly format: string;
  /** Milliseconds. */
  readonly flushFrequency: number;
  readonly verbosity: number;
  /** Verbosity of parts of the program by pattern; see `lib/log/vmodule.ts`. */
  readonly vmodule: readonly { readonly filePattern: string; readonly verbosity: number }[];
  readonly options: { readonly text: LogFormatOptions; readonly json: LogFormatOptions };
}

/** Fields of the iptables mode; its periods also drive the userspace mode. */
export interface IptablesConfiguration extends SyncPeriods {
  readonly masqueradeBit: number;
  readonly masqueradeAll: boolean;
  readonly localhostNodePorts: boolean;
}

/** Fields of the ipvs mode. Times are milliseconds. */
export interface IpvsConfiguration extends SyncPeriods {
  readonly scheduler: string;
  readonly excludeCIDRs: readonly string[];
  readonly strictARP: boolean;
  readonly tcpTimeout: number;
  readonly tcpFinTimeout: number;
  readonly udpTimeout: number;
}

/** Fields of the nftables mode. */
export interface NftablesConfiguration extends SyncPeriods {
  readonly masqueradeBit: number;
  readonly masqueradeAll: boolean;
}

/** Fields of Windows; accepted, without effect. */
interface WinkernelConfiguration {
  readonly networkName: string;
  readonly sourceVip: string;
  readonly enableDSR: boolean;
  readonly rootHnsEndpointName: string;
  readonly forwardHealthCheckVip: boolean;
}

/** The whole configuration, with upstream's field names and the extension. */
export interface KubeProxyConfiguration {
  readonly featureGates: Readonly<Record<string, boolean>>;
  readonly clientConnection: ClientConnection;
  readonly logging: LoggingConfiguration;
  /** Name of the node, trimmed and in lower case; empty = the name of the machine. */
  readonly hostnameOverride: string;
  /** The node's own address in the primary family; nothing is bound to it. */
  readonly bindAddress: string;
  /** `ip:port` of /healthz and /livez. */
  readonly healthzBindAddress: string;
  /** `ip:port` of /metrics. */
  readonly metricsBindAddress: string;
  readonly bindAddressHardFail: boolean;
  readonly enableProfiling: boolean;
  readonly showHiddenMetricsForVersion: string;
  /** As written; {@linkcode LoadedConfiguration.mode} of `load.ts` is the parsed form. */
  readonly mode: string;
  readonly iptables: IptablesConfiguration;
  readonly ipvs: IpvsConfiguration;
  readonly nftables: NftablesConfiguration;
  readonly winkernel: WinkernelConfiguration;
  readonly detectLocalMode: string;
  readonly detectLocal: {
    readonly bridgeInterface: string;
    readonly interfaceNamePrefix: string;
  };
  /** One CIDR, or one of each family separated by a comma; empty = unknown. */
  readonly clusterCIDR: string;
  /** CIDRs, or only `primary`; empty = all addresses of the node. */
  readonly nodePortAddresses: readonly string[];
  readonly oomScoreAdj: number;
  readonly conntrack: ConntrackLimits;
  /** Milliseconds. */
  readonly configSyncPeriod: number;
  /** A leftover of kube-proxy's old userspace mode; accepted, without effect. */
  readonly portRange: string;
  readonly windowsRunAsService: boolean;
  readonly networkPolicy: NetworkPolicyConfiguration;
  readonly routing: RoutingConfiguration;
}

/** The methods of recognizing a pod's traffic. */
export const DETECT_LOCAL_MODES: readonly string[] = [
  "ClusterCIDR",
  "NodeCIDR",
  "BridgeInterface",
  "InterfaceNamePrefix",
];

/** The log formats. */
export const LOG_FORMATS: readonly string[] = ["text", "json"];

/** A block that only some modes read. */
export type ConfigurationBlock = typeof MODE_TRAITS[BackendMode]["configurationBlock"];

/** The blocks with sync periods that a mode reads or, for `auto`, may read. */
export function blocksOf(mode: string): readonly ConfigurationBlock[] {
  if (mode === "auto") return ["iptables", "nftables"];
  const known = BACKEND_MODES.find((each) => each === mode) ?? "iptables";
  return [MODE_TRAITS[known].configurationBlock];
}

/** The sync periods of a mode. A mode without a block of its own shares that of iptables. */
export function syncPeriodsOf(
  configuration: KubeProxyConfiguration,
  mode: BackendMode,
): SyncPeriods {
  return configuration[MODE_TRAITS[mode].configurationBlock];
}

/** The block with `masqueradeAll` of a mode. All modes but nftables share that of iptables. */
export function rulesBlockOf(
  { iptables, nftables }: KubeProxyConfiguration,
  mode: BackendMode,
): SyncPeriods & { readonly masqueradeAll: boolean } {
  return MODE_TRAITS[mode].configurationBlock === "nftables" ? nftables : iptables;
}
