import { cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import { isInterfaceName, LONGEST_INTERFACE_NAME } from "../net/interface_name.ts";
import { tryParseIpAddress } from "../net/ip_address.ts";
import { blocksOf, DETECT_LOCAL_MODES, type KubeProxyConfiguration } from "./configuration.ts";
import { formatDuration } from "../api/duration.ts";
import {
  checkCidr,
  checkRange,
  checkTime,
  collectProblems,
  type Expect,
  type ValidationProblem,
} from "./expectation.ts";
import { checkFeatureGates } from "./feature_gates.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { didYouMean } from "../api/nearest_name.ts";
import { checkLogging } from "./check_logging.ts";
import { checkNetworkPolicy } from "./network_policy.ts";
import { parseRouting } from "./parse_routing.ts";

/** The release before this configuration's release: its hidden metrics may be shown. */
const PREVIOUS_RELEASE = "1.35";

/** A full sync runs once an hour, so a longer minimum between two syncs would never be met. */
const LONGEST_MIN_SYNC_MS = 3_600_000;

/** Names in nodePortAddresses: `primary` of 1.36, the others of KEP-6032. */
const NODE_PORT_WORDS: readonly string[] = ["primary", "localhost", "all"];

/**
 * Returns all problems of a configuration whose types are valid: ranges, addresses, contradictions.
 * In the order of its fields.
 */
export function validateConfiguration(
  configuration: KubeProxyConfiguration,
): readonly ValidationProblem[] {
  const problems: ValidationProblem[] = [];
  const expect = collectProblems(problems);
  checkConnection(configuration, expect);
  checkLogging(configuration, expect);
  checkAddresses(configuration, expect);
  checkLimits(configuration, expect);
  checkPeriods(configuration, expect);
  checkLocalTraffic(configuration, expect);
  checkNodePorts(configuration, expect);
  checkNetworkPolicy(configuration.networkPolicy, expect);
  parseRouting(configuration.routing, expect);
  return problems;
}

function checkConnection(configuration: KubeProxyConfiguration, expect: Expect): void {
  for (const { name, message } of checkFeatureGates(configuration.featureGates).problems) {
    expect(false, `featureGates.${name}`, message);
  }
  const { burst } = configuration.clientConnection;
  expect(burst >= 0, "clientConnection.burst", `Expected 0 or more, found ${burst}`);
}

function checkAddresses(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { bindAddress, hostnameOverride, showHiddenMetricsForVersion: shown } = configuration;
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
  const ports = { healthzBindAddress: HEALTHZ_PORT, metricsBindAddress: METRICS_PORT };
  for (const field of ["healthzBindAddress", "metricsBindAddress"] as const) {
    const text = configuration[field];
    const port = ports[field];
    expect(
      // Only port 0 results in an empty address: completion gives every other address a default.
      text === "" || tryParseListenAddress(text, port) !== undefined,
      field,
      `Expected an IP address and a port, such as 0.0.0.0:${port} or [::]:${port}, found '${text}'`,
    );
  }
  expect(
    shown === "" || shown === PREVIOUS_RELEASE,
    "showHiddenMetricsForVersion",
    `Expected nothing or the release before this one, ${PREVIOUS_RELEASE}, found '${shown}'`,
  );
}

function checkLimits(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { iptables, nftables, mode, oomScoreAdj, conntrack } = configuration;
  checkRange(expect, "iptables.masqueradeBit", { value: iptables.masqueradeBit, from: 0, to: 31 });
  if (blocksOf(mode).includes("nftables")) {
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
  for (const block of blocksOf(mode)) {
    const { syncPeriod, minSyncPeriod } = configuration[block];
    expect(
      syncPeriod > 0,
      `${block}.syncPeriod`,
      `Expected a time above 0, found ${formatDuration(syncPeriod)}`,
    );
    const longest = syncPeriod > 0 ? Math.min(syncPeriod, LONGEST_MIN_SYNC_MS) : Infinity;
    const bound = longest === syncPeriod ? "the syncPeriod of " : "";
    expect(
      minSyncPeriod >= 0 && minSyncPeriod <= longest,
      `${block}.minSyncPeriod`,
      `Expected 0s up to ${bound}${formatDuration(Math.min(longest, LONGEST_MIN_SYNC_MS))}, ` +
        `found ${formatDuration(minSyncPeriod)}`,
    );
  }
  expect(
    configSyncPeriod > 0,
    "configSyncPeriod",
    `Expected a time above 0, found ${formatDuration(configSyncPeriod)}`,
  );
  if (!blocksOf(mode).includes("ipvs")) return;
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
  const names = [
    ["BridgeInterface", "bridgeInterface", "the name of an interface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix", "a prefix of interface names"],
  ] as const;
  for (const [needing, field, what] of names) {
    if (mode === needing) checkInterface(expect, { field, what, name: detectLocal[field], mode });
  }
  if (mode !== "ClusterCIDR" || clusterCIDR === "") return;
  const cidrs = clusterCIDR.split(",").map((text) => checkCidr(expect, "clusterCIDR", text));
  const families = new Set(cidrs.map((cidr) => cidr && cidrFamilyOf(cidr)));
  expect(
    cidrs.length <= 2 && families.size === cidrs.length,
    "clusterCIDR",
    `Expected one CIDR, or one IPv4 and one IPv6 CIDR with a comma between, found '${clusterCIDR}'`,
  );
}

/**
 * Upstream accepts any text; the kernel refuses an impossible interface name in the rules of every
 * Service.
 */
function checkInterface(
  expect: Expect,
  { field, what, name, mode }: {
    readonly field: string;
    readonly what: string;
    readonly name: string;
    readonly mode: string;
  },
): void {
  expect(
    isInterfaceName(name),
    `detectLocal.${field}`,
    name === ""
      ? `Expected ${what}, since detectLocalMode is ${mode}; found nothing`
      : `Expected ${what}, at most ${LONGEST_INTERFACE_NAME} bytes without blank, slash or colon, ` +
        `found '${name}'`,
  );
}

function checkNodePorts({ nodePortAddresses }: KubeProxyConfiguration, expect: Expect): void {
  const isRange = (text: string) => !NODE_PORT_WORDS.includes(text);
  const hasRange = nodePortAddresses.some(isRange);
  nodePortAddresses.forEach((text, index) => {
    const path = `nodePortAddresses.${index}`;
    if (isRange(text)) {
      const message = `Expected a CIDR such as 192.0.2.0/24 or one of the words ${
        NODE_PORT_WORDS.join(", ")
      }, found '${text}'${didYouMean(text, NODE_PORT_WORDS)}`;
      expect(tryParseCidr(text) !== undefined, path, message);
    } else if (text === "primary") {
      expect(!hasRange, path, "Expected the word primary alone or CIDRs only, found both");
    }
  });
}
