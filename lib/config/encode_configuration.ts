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
  type ConfigurationBlock,
  isDefaultBlock,
  KIND,
  type KubeProxyConfiguration,
} from "./configuration.ts";
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
  const { ipvs, nftables, iptables } = upstream;
  const blocks = blocksOf(mode);
  const shared = (name: ConfigurationBlock) =>
    blocks.includes(name) ? {} : { syncPeriod: 0, minSyncPeriod: 0 };
  return encoded({
    ...upstream,
    ...(!isDefaultBlock(configuration, "networkPolicy") && { networkPolicy }),
    ...(!isDefaultBlock(configuration, "routing") && { routing }),
    apiVersion: API_VERSION,
    kind: KIND,
    mode,
    iptables: {
      ...iptables,
      ...shared("iptables"),
      // IPVS masquerades by the rules of iptables and has no such field of its own.
      masqueradeAll: blocks.some((block) => block !== "nftables") && iptables.masqueradeAll,
    },
    ipvs: { ...ipvs, ...shared("ipvs"), excludeCIDRs: listOrNull(ipvs.excludeCIDRs) },
    nftables: {
      ...nftables,
      ...shared("nftables"),
      masqueradeAll: blocks.includes("nftables") && nftables.masqueradeAll,
    },
    nodePortAddresses: listOrNull(configuration.nodePortAddresses),
  });
}

/** The fields whose numbers are times. */
const TIME = /(?:Period|Timeout|Frequency)$/;

function encoded(block: object): EncodedConfiguration {
  const entries = Object.entries(block).map(([name, value]) => {
    const isBlock = typeof value === "object" && value !== null && !Array.isArray(value);
    const isTime = typeof value === "number" && TIME.test(name);
    return [name, isBlock ? encoded(value) : isTime ? formatDuration(value) : value];
  });
  return Object.fromEntries(entries);
}

function listOrNull(list: readonly string[]): readonly string[] | null {
  return list.length === 0 ? null : list;
}
