/**
 * Writes a configuration back in the form of its file (v1alpha1), for `--write-config-to` and
 * `/configz`.
 *
 * @module
 */
import type { BackendMode } from "../proxy/backend.ts";
import {
  API_VERSION,
  blocksOf,
  type IptablesConfiguration,
  KIND,
  type KubeProxyConfiguration,
  type SyncPeriods,
} from "./configuration.ts";
import { isDefaultBlock } from "./configuration.ts";
import { formatDuration } from "../api/duration.ts";

/**
 * A configuration in the form of its file: durations are text in Go's form, an empty list is null.
 */
type EncodedConfiguration = Readonly<Record<string, unknown>>;

/**
 * Encodes a configuration for the mode that it resolved to. As upstream, which stores these
 * settings once, only the block of that mode has periods and masqueradeAll; the others have 0s, the
 * default. For `auto`, the blocks of both possible modes have them. Default extensions are
 * omitted, because kube-proxy would warn of an unknown field.
 */
export function encodeConfiguration(
  configuration: KubeProxyConfiguration,
  mode: BackendMode | "auto",
): EncodedConfiguration {
  const { networkPolicy, routing, ...upstream } = configuration;
  const { ipvs, nftables, iptables, conntrack, logging } = upstream;
  const blocks = blocksOf(mode);
  return {
    ...upstream,
    ...(!isDefaultBlock(configuration, "networkPolicy") && {
      networkPolicy: { ...networkPolicy, ...withTimes(networkPolicy, ["minSyncPeriod"]) },
    }),
    ...(!isDefaultBlock(configuration, "routing") && { routing }),
    apiVersion: API_VERSION,
    kind: KIND,
    mode,
    logging: { ...logging, ...withTimes(logging, ["flushFrequency"]) },
    iptables: {
      ...iptables,
      ...shared(iptables, blocks.includes("iptables")),
      // IPVS masquerades by the rules of iptables and has no such field of its own.
      masqueradeAll: blocks.some((block) => block !== "nftables") && iptables.masqueradeAll,
    },
    ipvs: {
      ...ipvs,
      ...periods(ipvs, blocks.includes("ipvs")),
      ...withTimes(ipvs, ["tcpTimeout", "tcpFinTimeout", "udpTimeout"]),
      excludeCIDRs: listOrNull(ipvs.excludeCIDRs),
    },
    nftables: { ...nftables, ...shared(nftables, blocks.includes("nftables")) },
    nodePortAddresses: listOrNull(configuration.nodePortAddresses),
    conntrack: {
      ...conntrack,
      ...withTimes(conntrack, [
        "tcpEstablishedTimeout",
        "tcpCloseWaitTimeout",
        "udpTimeout",
        "udpStreamTimeout",
      ]),
    },
    ...withTimes(configuration, ["configSyncPeriod"]),
  };
}

function shared(
  block: SyncPeriods & Pick<IptablesConfiguration, "masqueradeAll">,
  isActive: boolean,
) {
  return { ...periods(block, isActive), masqueradeAll: isActive && block.masqueradeAll };
}

function periods({ syncPeriod, minSyncPeriod }: SyncPeriods, isActive: boolean) {
  return {
    syncPeriod: formatDuration(isActive ? syncPeriod : 0),
    minSyncPeriod: formatDuration(isActive ? minSyncPeriod : 0),
  };
}

function withTimes<Field extends string>(
  block: Readonly<Record<Field, number>>,
  fields: readonly Field[],
): Readonly<Record<string, string>> {
  return Object.fromEntries(fields.map((field) => [field, formatDuration(block[field])]));
}

function listOrNull(list: readonly string[]): readonly string[] | null {
  return list.length === 0 ? null : list;
}
