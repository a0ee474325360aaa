/**
 * How upstream calls a field in its messages, so that what is known of those can be found.
 *
 * @module
 */

/** Blocks go by the names of their Go types. */
const BLOCKS: Readonly<Record<string, string>> = {
  iptables: "KubeProxyIPTablesConfiguration",
  ipvs: "KubeProxyIPVSConfiguration",
  nftables: "KubeProxyNFTablesConfiguration",
  conntrack: "KubeProxyConntrackConfiguration",
};

/** Go writes abbreviations in capitals. */
const ABBREVIATIONS = /^(tcp|udp|oom)(?=[A-Z])/;

/** `KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit` for `iptables.masqueradeBit`. */
export function upstreamPath(path: string): string {
  // Maps, blocks of other components and our own block keep the names that they have in the file.
  if (/^(featureGates|logging|networkPolicy)\b/.test(path)) return `KubeProxyConfiguration.${path}`;
  const steps = path.split(".").map((step, index) => {
    if (/^\d+$/.test(step)) return `[${step}]`;
    const block = index === 0 ? BLOCKS[step] : undefined;
    return `.${block ?? goName(step)}`;
  });
  return `KubeProxyConfiguration${steps.join("")}`;
}

function goName(name: string): string {
  const spelt = name.replace(ABBREVIATIONS, (letters) => letters.toUpperCase());
  return spelt.charAt(0).toUpperCase() + spelt.slice(1);
}
