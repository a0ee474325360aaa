/**
 * The modes of this build: the only list of backends. The command line refuses other modes, and no
 * mode ever replaces another. With the data planes of addresses and routes.
 *
 * @module
 */
import type { DataPlaneEdges } from "../lib/engine/data_plane.ts";
import type { IpFamily } from "../lib/net/ip_address.ts";
import type { Network, SocketAddress } from "../lib/os/network.ts";
import type { OpenFiles } from "../lib/os/open_files.ts";
import type { RelayWorkers } from "../lib/os/worker_pool.ts";
import type { ConnectionJudge } from "../lib/policy/connection_judge.ts";
import type { Backend, BackendMode } from "../lib/proxy/backend.ts";
import type { EndpointHealthChange, MachineFacts } from "../lib/proxy/service_mode.ts";
import type { FamilyTraffic } from "../lib/proxy/service_traffic.ts";
import type { ReadSecret } from "../lib/routing/bgp_plan.ts";
import { BirdDataPlane } from "./announce/bird/data_plane.ts";
import { Layer2DataPlane } from "./announce/layer2/data_plane.ts";
import { PodNetworkDataPlane, type PodNetworkOptions } from "./announce/pod_network/data_plane.ts";
import { IptablesBackend } from "./iptables/backend.ts";
import { IpvsBackend, type IpvsConfigurationFields } from "./ipvs/backend.ts";
import type { RulePlaneEdges } from "./netfilter/rule_plane.ts";
import { NftablesBackend } from "./nftables/backend.ts";
import { type AddressMode, ServiceAddresses } from "./userspace/addresses/addresses.ts";
import { createFileStore } from "./userspace/addresses/address_store.ts";
import { UserspaceBackend } from "./userspace/backend.ts";
import { userspaceComparison } from "./userspace/userspace_comparison.ts";
import type { StartPacketWatch } from "../lib/proxy/packet_trace.ts";
import { createIpvsTrace } from "./ipvs/trace.ts";
import { createIptablesTrace } from "./netfilter/trace/iptables_trace.ts";
import type { TraceEdges } from "./netfilter/trace/nft_watch.ts";
import { createNftablesTrace } from "./nftables/trace.ts";

interface BackendDependencies extends RulePlaneEdges {
  readonly network: Network;
  /** Limits of open files. @default {the usual limits, for this backend alone} */
  readonly openFiles?: OpenFiles;
  /** Threads that forward in mode userspace. @default {the main thread does} */
  readonly workers?: RelayWorkers | undefined;
  /** Called when endpoints became unhealthy, were ejected, or returned. @default {nothing} */
  readonly onHealth?: (changes: readonly EndpointHealthChange[]) => void;
}

/** The settings that some backend reads. */
export interface BackendOptions {
  readonly family: IpFamily;
  readonly relay: {
    readonly addressMode: AddressMode;
    readonly udpTimeoutMs: number;
    readonly maxConnectionsPerService: number;
    readonly unixSocketFolders?: readonly string[];
    readonly stateDirectory: string;
    readonly ipvsDrainTimeoutMs: number;
  };
  /** As in kube-proxy's configuration; times are milliseconds. */
  readonly iptables: {
    readonly masqueradeBit: number;
    readonly localhostNodePorts: boolean;
    readonly syncPeriod: number;
  };
  readonly ipvs: IpvsConfigurationFields;
  readonly nftables: { readonly masqueradeBit: number; readonly syncPeriod: number };
  /** The facts of a machine, for a backend that is not started there. @default {everything} */
  readonly facts?: MachineFacts;
  /** Receives the traffic of each Service; absent = not counted. */
  readonly traffic?: FamilyTraffic;
  /** TCP listeners of this process that serve more to local clients. @default {[]} */
  readonly localListeners?: readonly SocketAddress[];
  /** Judges what the backend relays. @default {everything is allowed} */
  readonly judge?: ConnectionJudge;
}

/** Creates the backend of each mode. */
export const BACKENDS: Readonly<
  Partial<Record<BackendMode, (edges: BackendDependencies, options: BackendOptions) => Backend>>
> = {
  iptables({ network: _, ...edges }, { family, iptables, facts }) {
    const { masqueradeBit, localhostNodePorts, syncPeriod: syncPeriodMs } = iptables;
    return new IptablesBackend(edges, {
      family,
      masqueradeBit,
      localhostNodePorts,
      syncPeriodMs,
      ...(facts && { facts }),
    });
  },
  ipvs(edges, { family, iptables: { masqueradeBit }, ipvs, relay, facts }) {
    const { ipvsDrainTimeoutMs: drainTimeoutMs } = relay;
    const options = { family, masqueradeBit, drainTimeoutMs, ipvs, ...(facts && { facts }) };
    return new IpvsBackend(edges, options);
  },
  nftables({ network: _, ...edges }, { family, nftables, facts, traffic }) {
    const { masqueradeBit, syncPeriod: syncPeriodMs } = nftables;
    const options = { family, masqueradeBit, syncPeriodMs };
    return new NftablesBackend(
      { ...edges, ...(traffic && { traffic }) },
      { ...options, ...(facts && { facts }) },
    );
  },
  userspace({ clock, commands, logger, network, onHealth, openFiles, random, workers }, options) {
    const { family, relay, judge, localListeners, traffic } = options;
    const { addressMode: mode, stateDirectory: directory } = relay;
    const store = createFileStore({ directory, family });
    const addresses = new ServiceAddresses(
      { clock, logger, network, runner: commands, store },
      family,
      mode,
    );
    const { udpTimeoutMs, maxConnectionsPerService, unixSocketFolders = [] } = relay;
    const comparison = userspaceComparison({ runner: commands, store }, { family });
    return new UserspaceBackend(
      {
        ...{ clock, logger, network, addresses, comparison, random, onHealth, workers },
        ...(openFiles && { openFiles }),
        ...(traffic && { traffic }),
      },
      {
        family,
        udpTimeoutMs,
        maxConnectionsPerService,
        unixSocketFolders,
        maxFlowsPerService: maxConnectionsPerService,
        ...(localListeners && { localListeners }),
        ...(judge && { judge }),
      },
    );
  },
};

/**
 * Packet watches by mode. The userspace mode has none: its process reports its connections itself.
 */
export function createPacketTraces(
  { pid, random, ...machine }: Omit<TraceEdges, "id"> & {
    readonly pid: number;
    /** From 0 to 1, as `Math.random`. */
    readonly random: () => number;
  },
): Readonly<Record<Exclude<BackendMode, "userspace">, StartPacketWatch>> {
  const edges = { ...machine, id: `${pid}-${Math.floor(random() * 0x10000).toString(16)}` };
  return {
    iptables: createIptablesTrace(edges),
    ipvs: createIpvsTrace(edges),
    nftables: createNftablesTrace(edges),
  };
}

/** Creates the data planes of addresses and routes. */
export const ROUTING_BACKENDS = {
  layer2(
    edges: DataPlaneEdges,
    options: { readonly family: IpFamily; readonly announceIntervalMs: number },
  ): Layer2DataPlane {
    return new Layer2DataPlane(edges, options);
  },
  bgp(
    edges: DataPlaneEdges,
    { configFile: file, controlSocket: socket, readSecret }: {
      readonly configFile: string;
      readonly controlSocket: string;
      readonly readSecret?: ReadSecret;
    },
  ): BirdDataPlane {
    const secretsFile = file.replace(/(\.conf)?$/, "-secrets.conf");
    return new BirdDataPlane(edges, { file, secretsFile, socket, readSecret });
  },
  podNetwork(edges: DataPlaneEdges, options: PodNetworkOptions): PodNetworkDataPlane {
    return new PodNetworkDataPlane(edges, options);
  },
};
