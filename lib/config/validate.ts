import { formatDuration } from "../api/duration.ts";
import { didYouMean } from "../api/nearest_name.ts";
import { cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import { isInterfaceName, LONGEST_INTERFACE_NAME } from "../net/interface_name.ts";
import { tryParseIpAddress } from "../net/ip_address.ts";
import { blocksOf, type KubeProxyConfiguration, valueAt } from "./configuration.ts";
import { checkCidr, collectProblems, type Expect, type ValidationProblem } from "./expectation.ts";
import { checkFeatureGates, featureEnabled } from "./feature_gates.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { NETWORK_POLICY_CHOICES, NETWORK_POLICY_LIMITS } from "./network_policy.ts";
import { parseRouting } from "./parse_routing.ts";

/** The release before this configuration's release: its hidden metrics may be shown. */
const PREVIOUS_RELEASE = "1.35";
/** A full sync runs once an hour, so a longer minimum between two syncs would never be met. */
const LONGEST_MIN_SYNC_MS = 3_600_000;
const LARGEST_INT32 = 2 ** 31 - 1;
/** Names in nodePortAddresses: `primary` of 1.36, the others of KEP-6032. */
const NODE_PORT_WORDS: readonly string[] = ["primary", "localhost", "all"];
/** A Kubernetes quantity: a number with a decimal or binary suffix, or an exponent. */
const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$/;

/**
 * Returns all problems of a configuration whose types are valid: ranges, addresses, contradictions.
 * In the order of its fields.
 */
export function validateConfiguration(
  configuration: KubeProxyConfiguration,
): readonly ValidationProblem[] {
  const problems: ValidationProblem[] = [];
  const expect = collectProblems(problems);
  const checks = makeChecks(configuration, expect);
  for (const { name, message } of checkFeatureGates(configuration.featureGates).problems) {
    expect(false, `featureGates.${name}`, message);
  }
  const { burst } = configuration.clientConnection;
  expect(burst >= 0, "clientConnection.burst", `Expected 0 or more, found ${burst}`);
  checkLogging(configuration, expect, checks);
  checkAddresses(configuration, expect);
  checks.range("iptables.masqueradeBit", 0, 31);
  const blocks = blocksOf(configuration.mode);
  if (blocks.includes("nftables")) checks.range("nftables.masqueradeBit", 0, 31);
  checks.range("oomScoreAdj", -1000, 1000);
  for (const field of ["maxPerCore", "min"]) checks.range(`conntrack.${field}`, 0, LARGEST_INT32);
  for (const field of ["tcpEstablished", "tcpCloseWait", "udp"]) {
    checks.time(`conntrack.${field}Timeout`, isNotNegative, "0s or more");
  }
  checks.time("conntrack.udpStreamTimeout", isNotNegative, "0s or more");
  checkPeriods(configuration, expect, checks);
  checkLocalTraffic(configuration, expect, checks);
  checkNodePorts(configuration, expect);
  // Even if the extensions are disabled, because a flag may enable them.
  for (const field of ["mode", "start", "deny"] as const) {
    checks.choice(`networkPolicy.${field}`, NETWORK_POLICY_CHOICES[field]);
  }
  const { logPerMinute, logGroup, minSyncPeriod: longest } = NETWORK_POLICY_LIMITS;
  checks.range("networkPolicy.logPerMinute", 0, logPerMinute);
  checks.range("networkPolicy.logGroup", 0, logGroup);
  const isRight = (ms: number) => ms >= 0 && ms <= longest;
  checks.time("networkPolicy.minSyncPeriod", isRight, `0s up to ${formatDuration(longest)}`);
  parseRouting(configuration.routing, expect);
  return problems;
}

/** The checks that need only a field and its bounds. */
function makeChecks(configuration: object, expect: Expect) {
  const valueOf = (path: string) => valueAt(configuration, path);
  return {
    range(path: string, from: number, to: number): void {
      const value = valueOf(path) as number;
      const message = `Expected a number from ${from} to ${to}, found ${value}`;
      expect(value >= from && value <= to, path, message);
    },
    /** `bounds` says what is right; times are milliseconds. */
    time(path: string, isRight: (ms: number) => boolean, bounds: string): void {
      const ms = valueOf(path) as number;
      expect(isRight(ms), path, `Expected ${bounds}, found ${formatDuration(ms)}`);
    },
    choice(path: string, choices: readonly string[]): void {
      const value = valueOf(path) as string;
      const message = `Expected one of ${choices.join(", ")}, found '${value}'`;
      expect(choices.includes(value), path, message + didYouMean(value, choices));
    },
  };
}

type Checks = ReturnType<typeof makeChecks>;

function isNotNegative(ms: number): boolean {
  return ms >= 0;
}

function isPositive(ms: number): boolean {
  return ms > 0;
}

/** By the rules of Kubernetes' component-base. */
function checkLogging(
  configuration: KubeProxyConfiguration,
  expect: Expect,
  checks: Checks,
): void {
  const { format, vmodule, options } = configuration.logging;
  const at = "logging.format";
  const formats: readonly string[] = ["text", "json"];
  const hint = didYouMean(format, formats);
  expect(formats.includes(format), at, `Expected text or json, found '${format}'${hint}`);
  expect(
    format !== "json" || featureEnabled(configuration, "LoggingBetaOptions"),
    at,
    "Expected text, since feature gate LoggingBetaOptions is off; found 'json'",
  );
  checks.time("logging.flushFrequency", isPositive, "a time above 0");
  checks.range("logging.verbosity", 0, LARGEST_INT32);
  expect(
    format !== "json" || vmodule.length === 0,
    "logging.vmodule",
    "Expected nothing together with logging.format json, found a list",
  );
  vmodule.forEach(({ filePattern }, index) => {
    const path = `logging.vmodule.${index}`;
    expect(
      /^[^=,]+$/.test(filePattern),
      `${path}.filePattern`,
      `Expected a pattern without '=' and ',', found '${filePattern}'`,
    );
    checks.range(`${path}.verbosity`, 0, LARGEST_INT32);
  });
  const isOpen = featureEnabled(configuration, "LoggingAlphaOptions");
  const because = "since feature gate LoggingAlphaOptions is off";
  for (const format of ["text", "json"] as const) {
    const { splitStream, infoBufferSize: size } = options[format];
    const path = `logging.options.${format}`;
    const isQuantity = QUANTITY.test(size);
    const wanted = `Expected a quantity such as 0 or 64Ki, found '${size}'`;
    expect(isQuantity, `${path}.infoBufferSize`, wanted);
    expect(
      isOpen || !splitStream,
      `${path}.splitStream`,
      `Expected false, ${because}; found true`,
    );
    expect(
      isOpen || !isQuantity || /^[+-]?[0.]+\D*$/.test(size),
      `${path}.infoBufferSize`,
      `Expected 0, ${because}; found ${size}`,
    );
  }
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

function checkPeriods(configuration: KubeProxyConfiguration, expect: Expect, checks: Checks): void {
  const blocks = blocksOf(configuration.mode);
  for (const block of blocks) {
    const { syncPeriod } = configuration[block];
    checks.time(`${block}.syncPeriod`, isPositive, "a time above 0");
    const longest = syncPeriod > 0 ? Math.min(syncPeriod, LONGEST_MIN_SYNC_MS) : Infinity;
    const bound = longest === syncPeriod ? "the syncPeriod of " : "";
    checks.time(
      `${block}.minSyncPeriod`,
      (ms) => ms >= 0 && ms <= longest,
      `0s up to ${bound}${formatDuration(Math.min(longest, LONGEST_MIN_SYNC_MS))}`,
    );
  }
  checks.time("configSyncPeriod", isPositive, "a time above 0");
  if (!blocks.includes("ipvs")) return;
  for (const field of ["tcp", "tcpFin", "udp"]) {
    checks.time(`ipvs.${field}Timeout`, isNotNegative, "0s or more");
  }
  configuration.ipvs.excludeCIDRs
    .forEach((text, index) => checkCidr(expect, `ipvs.excludeCIDRs.${index}`, text));
}

function checkLocalTraffic(
  { detectLocalMode: mode, detectLocal, clusterCIDR }: KubeProxyConfiguration,
  expect: Expect,
  checks: Checks,
): void {
  checks.choice("detectLocalMode", [
    "ClusterCIDR",
    "NodeCIDR",
    "BridgeInterface",
    "InterfaceNamePrefix",
  ]);
  const names = [
    ["BridgeInterface", "bridgeInterface", "the name of an interface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix", "a prefix of interface names"],
  ] as const;
  for (const [needing, field, what] of names) {
    if (mode !== needing) continue;
    const name = detectLocal[field];
    // Upstream accepts any text; the kernel refuses an impossible name in the rules of every Service.
    expect(
      isInterfaceName(name),
      `detectLocal.${field}`,
      name === ""
        ? `Expected ${what}, since detectLocalMode is ${mode}; found nothing`
        : `Expected ${what}, at most ${LONGEST_INTERFACE_NAME} bytes without blank, slash or colon, ` +
          `found '${name}'`,
    );
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
