/**
 * Finds what is wrong with a configuration whose types are right: ranges, addresses, contradictions.
 *
 * @module
 */
import { cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import { tryParseIpAddress } from "../net/ip_address.ts";
import {
  DETECT_LOCAL_MODES,
  type KubeProxyConfiguration,
  LOG_FORMATS,
  syncPeriodsOf,
} from "./configuration.ts";
import { formatDuration } from "./duration.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { didYouMean } from "./nearest_name.ts";

/** One thing that is wrong. */
export interface ValidationProblem {
  /** Field of the configuration, e.g. `iptables.minSyncPeriod`; list items by number. */
  readonly path: string;
  /** The value and what would be right. */
  readonly message: string;
}

/** Everything that is wrong with a configuration, in the order of its fields. */
export function validateConfiguration(
  configuration: KubeProxyConfiguration,
): readonly ValidationProblem[] {
  const problems: ValidationProblem[] = [];
  const expect: Expect = (right, path, message) => {
    if (!right) problems.push({ path, message });
  };
  checkConnection(configuration, expect);
  checkAddresses(configuration, expect);
  checkLimits(configuration, expect);
  checkPeriods(configuration, expect);
  checkLocalTraffic(configuration, expect);
  checkNodePorts(configuration, expect);
  return problems;
}

type Expect = (right: boolean, path: string, message: string) => void;

function checkConnection({ clientConnection, logging }: KubeProxyConfiguration, expect: Expect) {
  const { burst } = clientConnection;
  expect(burst >= 0, "clientConnection.burst", `Expected 0 or more, found ${burst}`);
  const { format, verbosity, flushFrequency, vmodule } = logging;
  expect(
    LOG_FORMATS.includes(format),
    "logging.format",
    `Expected text or json, found '${format}'${didYouMean(format, LOG_FORMATS)}`,
  );
  expect(
    flushFrequency > 0,
    "logging.flushFrequency",
    `Expected a time above 0, found ${formatDuration(flushFrequency)}`,
  );
  checkRange(expect, "logging.verbosity", { value: verbosity, from: 0, to: 2 ** 31 - 1 });
  expect(
    format !== "json" || vmodule.length === 0,
    "logging.vmodule",
    "Expected nothing together with logging.format json, found a list",
  );
}

function checkAddresses(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  expect(
    hostnameOverride === "" || hostnameOverride.trim() !== "",
    "hostnameOverride",
    "Expected the name of a node or nothing, found blanks",
  );
  expect(
    tryParseIpAddress(bindAddress) !== undefined,
    "bindAddress",
    `Expected an IP address without brackets or port, found '${bindAddress}'`,
  );
  checkListenAddress(expect, "healthzBindAddress", {
    text: healthzBindAddress,
    port: HEALTHZ_PORT,
  });
  checkListenAddress(expect, "metricsBindAddress", {
    text: metricsBindAddress,
    port: METRICS_PORT,
  });
}

function checkListenAddress(
  expect: Expect,
  path: string,
  { text, port }: { text: string; port: number },
): void {
  expect(
    tryParseListenAddress(text, port) !== undefined,
    path,
    `Expected an IP address and a port, such as 0.0.0.0:${port} or [::]:${port}, found '${text}'`,
  );
}

function checkLimits(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { iptables, nftables, mode, oomScoreAdj, conntrack } = configuration;
  checkRange(expect, "iptables.masqueradeBit", { value: iptables.masqueradeBit, from: 0, to: 31 });
  if (mode === "nftables") {
    const value = nftables.masqueradeBit;
    checkRange(expect, "nftables.masqueradeBit", { value, from: 0, to: 31 });
  }
  checkRange(expect, "oomScoreAdj", { value: oomScoreAdj, from: -1000, to: 1000 });
  for (const field of ["maxPerCore", "min"] as const) {
    checkRange(expect, `conntrack.${field}`, { value: conntrack[field], from: 0, to: 2 ** 31 - 1 });
  }
  const timeouts = [
    "tcpEstablishedTimeout",
    "tcpCloseWaitTimeout",
    "udpTimeout",
    "udpStreamTimeout",
  ] as const;
  for (const field of timeouts) checkTime(expect, `conntrack.${field}`, conntrack[field]);
}

function checkPeriods(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { mode, ipvs, configSyncPeriod } = configuration;
  const block = mode === "ipvs" || mode === "nftables" ? mode : "iptables";
  const { syncPeriod, minSyncPeriod } = syncPeriodsOf(configuration, mode);
  expect(
    syncPeriod > 0,
    `${block}.syncPeriod`,
    `Expected a time above 0, found ${formatDuration(syncPeriod)}`,
  );
  expect(
    minSyncPeriod >= 0 && (minSyncPeriod <= syncPeriod || syncPeriod <= 0),
    `${block}.minSyncPeriod`,
    `Expected 0s up to the syncPeriod of ${formatDuration(syncPeriod)}, ` +
      `found ${formatDuration(minSyncPeriod)}`,
  );
  expect(
    configSyncPeriod > 0,
    "configSyncPeriod",
    `Expected a time above 0, found ${formatDuration(configSyncPeriod)}`,
  );
  if (mode !== "ipvs") return;
  for (const field of ["tcpTimeout", "tcpFinTimeout", "udpTimeout"] as const) {
    checkTime(expect, `ipvs.${field}`, ipvs[field]);
  }
  ipvs.excludeCIDRs.forEach((text, index) => checkCidr(expect, `ipvs.excludeCIDRs.${index}`, text));
}

function checkLocalTraffic(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { detectLocalMode: mode, detectLocal, clusterCIDR } = configuration;
  expect(
    DETECT_LOCAL_MODES.includes(mode),
    "detectLocalMode",
    `Expected one of ${DETECT_LOCAL_MODES.join(", ")}, found '${mode}'` +
      didYouMean(mode, DETECT_LOCAL_MODES),
  );
  expect(
    mode !== "BridgeInterface" || detectLocal.bridgeInterface !== "",
    "detectLocal.bridgeInterface",
    "Expected the name of an interface, since detectLocalMode is BridgeInterface; found nothing",
  );
  expect(
    mode !== "InterfaceNamePrefix" || detectLocal.interfaceNamePrefix !== "",
    "detectLocal.interfaceNamePrefix",
    "Expected a prefix of interface names, since detectLocalMode is InterfaceNamePrefix; found nothing",
  );
  if (mode !== "ClusterCIDR" || clusterCIDR === "") return;
  const cidrs = clusterCIDR.split(",").map((text) => checkCidr(expect, "clusterCIDR", text));
  const families = new Set(cidrs.map((cidr) => cidr && cidrFamilyOf(cidr)));
  expect(
    cidrs.length <= 2 && families.size === cidrs.length,
    "clusterCIDR",
    `Expected one CIDR, or one IPv4 and one IPv6 CIDR with a comma between, found '${clusterCIDR}'`,
  );
}

function checkNodePorts({ nodePortAddresses }: KubeProxyConfiguration, expect: Expect): void {
  if (nodePortAddresses.length === 1 && nodePortAddresses[0] === "primary") return;
  nodePortAddresses.forEach((text, index) => {
    const path = `nodePortAddresses.${index}`;
    if (text === "primary") {
      expect(false, path, "Expected the word primary alone or CIDRs only, found both");
    } else checkCidr(expect, path, text);
  });
}

function checkCidr(expect: Expect, path: string, text: string) {
  const cidr = tryParseCidr(text);
  expect(
    cidr !== undefined,
    path,
    `Expected a CIDR such as 10.244.0.0/16 or fd00::/48, found '${text}'`,
  );
  return cidr;
}

function checkRange(
  expect: Expect,
  path: string,
  { value, from, to }: { value: number; from: number; to: number },
): void {
  expect(
    value >= from && value <= to,
    path,
    `Expected a number from ${from} to ${to}, found ${value}`,
  );
}

function checkTime(expect: Expect, path: string, milliseconds: number): void {
  expect(
    milliseconds >= 0,
    path,
    `Expected 0s or more, found ${formatDuration(milliseconds)}`,
  );
}
