/**
 * Derives the settings of the plan and of modes from the configuration.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "../../config/listen_address.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import { type Cidr, parseCidr } from "../../net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  isUnspecified,
  parseIpAddress,
} from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { AgentPort, KnownHost } from "../../proxy/frontend_owners.ts";
import { type BackendMode, MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";
import { type DetectLocalMode, localTrafficDetector } from "../../proxy/local_traffic.ts";
import { BGP_PORT, bgpHostOf } from "../../routing/bgp_plan.ts";
import {
  type NodePortAddresses,
  nodePortAddressesFor,
  type NodeState,
  nodeStateFromNode,
} from "../../proxy/node_state.ts";
import type { PlanOptions } from "../../proxy/proxy_plan.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { BackendOptions } from "../dependencies.ts";

/** The settings of the plan, as they depend on configuration and own node. */
export interface PlanSettings {
  /** Returns the state of the own node; `undefined` = its object is unknown. */
  nodeState(node: Node | undefined): NodeState;
  /** Completes settings that depend on the Node object: `primary`, mode NodeCIDR. */
  planOptions(family: IpFamily, node: NodeState): PlanOptions;
}

/** Returns the node port addresses by the configuration alone; `primary` matches none. */
export function configuredNodePorts(
  { nodePortAddresses }: Pick<KubeProxyConfiguration, "nodePortAddresses">,
  mode: BackendMode,
  family: IpFamily,
): NodePortAddresses {
  return nodePortAddressesFor(family, nodePortEntries(nodePortAddresses, mode), { addresses: [] });
}

/** Returns the settings of a validated configuration, for a node and a mode. */
export function planSettingsOf(
  configuration: KubeProxyConfiguration,
  { nodeName, mode, externalIpRanges = [] }: {
    readonly nodeName: string;
    readonly mode: BackendMode;
    /** @default {[]: any external IP} */
    readonly externalIpRanges?: readonly Cidr[];
  },
): PlanSettings {
  const bindAddress = parseIpAddress(configuration.bindAddress);
  const clusterCidrs = configuration.clusterCIDR.split(",").filter((text) => text !== "")
    .map(parseCidr);
  const entries = nodePortEntries(configuration.nodePortAddresses, mode);
  // All modes but nftables share the setting of iptables.
  const block = MODE_TRAITS[mode].configurationBlock === "nftables" ? "nftables" : "iptables";
  const { masqueradeAll } = configuration[block];
  const addresses = {
    bindsAddresses: MODE_TRAITS[mode].bindsAddresses,
    sharesByServerName: MODE_TRAITS[mode].forwardsItself,
    externalIpRanges,
    configuredHosts: peersOf(configuration),
  };
  const agentPorts = {
    IPv4: agentPortsOf(configuration, "IPv4"),
    IPv6: agentPortsOf(configuration, "IPv6"),
  };
  return {
    nodeState(node) {
      const state = nodeStateFromNode(node, nodeName);
      if (isUnspecified(bindAddress)) return state;
      // A specified bind address overrides the Node's address of its family, as in kube-proxy.
      const others = state.addresses.filter((address) =>
        ipFamilyOf(address) !== ipFamilyOf(bindAddress)
      );
      return { ...state, addresses: [bindAddress, ...others] };
    },
    planOptions: (family, node) => ({
      family,
      localTraffic: localTrafficDetector({
        mode: (configuration.detectLocalMode || "ClusterCIDR") as DetectLocalMode,
        clusterCidrs,
        podCidrs: node.podCidrs,
        bridgeInterface: configuration.detectLocal.bridgeInterface,
        interfaceNamePrefix: configuration.detectLocal.interfaceNamePrefix,
      }, family),
      nodePortAddresses: nodePortAddressesFor(family, entries, node),
      masqueradeAll,
      agentPorts: agentPorts[family],
      addresses,
    }),
  };
}

function peersOf({ routing }: KubeProxyConfiguration): ReadonlyMap<IpAddress, KnownHost> {
  if (!routing.enabled || !routing.bgp.enabled) return new Map();
  const { peers = [] } = routingSettingsOf(routing).bgp ?? {};
  return new Map(peers.map((peer) => [peer.address, bgpHostOf(peer)]));
}

/** The ports on which other machines reach kube-relay and its BGP daemon in a family. */
export function agentPortsOf(
  { healthzBindAddress, metricsBindAddress, routing }: Pick<
    KubeProxyConfiguration,
    "healthzBindAddress" | "metricsBindAddress" | "routing"
  >,
  family: IpFamily,
): readonly AgentPort[] {
  const bgp: readonly AgentPort[] = routing.enabled && routing.bgp.enabled
    ? [{ port: BGP_PORT, server: "BGP daemon" }]
    : [];
  const listening = [
    ["health server", tryParseListenAddress(healthzBindAddress, HEALTHZ_PORT)],
    ["metrics server", tryParseListenAddress(metricsBindAddress, METRICS_PORT)],
  ] as const;
  const http = listening.flatMap(([server, found]): AgentPort[] => {
    if (found === undefined) return [];
    const [address, port] = [parseIpAddress(found.hostname), parsePort(found.port)];
    if (isUnspecified(address)) return [{ port, server }];
    const isReachable = ipFamilyOf(address) === family && !isLoopback(address);
    return isReachable ? [{ port, address, server }] : [];
  });
  return [...http, ...bgp];
}

/** Returns the settings that backends of all modes and IP families are created with. */
export function modeSettingsOf(
  { proxy, relay }: Pick<LoadedConfiguration, "proxy" | "relay">,
): Pick<BackendOptions, "iptables" | "ipvs" | "nftables" | "relay" | "localListeners"> {
  const { iptables, ipvs, nftables, metricsBindAddress } = proxy;
  const metrics = tryParseListenAddress(metricsBindAddress, METRICS_PORT);
  return { iptables, ipvs, nftables, relay, localListeners: metrics ? [metrics] : [] };
}

/** Returns the options of a backend that serves nothing, without knowledge of the node. */
export function idleBackendOptions(
  configuration: Pick<LoadedConfiguration, "proxy" | "relay">,
  family: IpFamily,
): BackendOptions {
  return {
    family,
    ...modeSettingsOf(configuration),
    // Nothing is counted.
    ...(configuration.relay.serviceCounters && { traffic: new ServiceTrafficTable().of(family) }),
  };
}
