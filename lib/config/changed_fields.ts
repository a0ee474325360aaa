import { type BackendMode, MODE_TRAITS } from "../proxy/backend.ts";
import type { ConfigurationBlock, KubeProxyConfiguration } from "./configuration.ts";

/** Names of the fields that differ, e.g. `iptables.syncPeriod`. */
export interface ChangedFields {
  /** Fields that a running process can apply. */
  readonly applicable: readonly string[];
  /** Fields that only take effect after a restart. */
  readonly others: readonly string[];
}

/** Fields that only affect the log and the plans. */
const APPLICABLE: readonly RegExp[] = [
  /^logging\.(verbosity|vmodule)$/,
  /^(clusterCIDR|detectLocalMode|nodePortAddresses)$/,
  /^detectLocal\./,
  /^(iptables|nftables)\.masqueradeAll$/,
  /^networkPolicy\.(start|deny|logPerMinute|cutConnections)$/,
];

/** Fields that nothing reads. */
const WITHOUT_EFFECT = /^(winkernel\..*|windowsRunAsService|portRange|configSyncPeriod)$/;

/** All blocks that a mode reads, by the one with its periods. Mode ipvs writes iptables rules. */
const BLOCKS_READ: Readonly<Record<ConfigurationBlock, readonly string[]>> = {
  iptables: ["iptables"],
  ipvs: ["iptables", "ipvs"],
  nftables: ["nftables"],
};

/** Returns the fields that differ and have an effect in the running mode. */
export function changedFields(
  before: KubeProxyConfiguration,
  after: KubeProxyConfiguration,
  mode: BackendMode,
): ChangedFields {
  const disabled = (["networkPolicy", "routing"] as const)
    .filter((block) => !before[block].enabled && !after[block].enabled);
  const read = BLOCKS_READ[MODE_TRAITS[mode].configurationBlock];
  const fields = differences(before, after).filter((field) => {
    const block = field.split(".")[0]!;
    if (disabled.some((other) => other === block)) return false;
    return !WITHOUT_EFFECT.test(field) && (!(block in BLOCKS_READ) || read.includes(block));
  });
  const isApplicable = (field: string) => APPLICABLE.some((pattern) => pattern.test(field));
  return {
    applicable: fields.filter(isApplicable),
    others: fields.filter((field) => !isApplicable(field)),
  };
}

/** Paths of the values that differ; a list is one value. */
function differences(before: unknown, after: unknown, path = ""): readonly string[] {
  if (isBlock(before) && isBlock(after)) {
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((name) =>
      differences(before[name], after[name], path === "" ? name : `${path}.${name}`)
    );
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [path];
}

function isBlock(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
