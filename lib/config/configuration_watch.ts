/**
 * Reads the configuration file again whenever it changes.
 *
 * kube-proxy exits on an event of the file's inode, and so misses atomic saves and ConfigMaps
 * (kubernetes/kubernetes #57144, #94022). kube-relay sees every change and applies what a running
 * process can apply. For the rest it exits, and its supervisor starts it again.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import { fileState } from "../os/file_state.ts";
import { type BackendMode, MODE_TRAITS } from "../proxy/backend.ts";
import { routingPartsOf } from "../routing/routing_settings.ts";
import { effectiveConfiguration, type KubeProxyConfiguration } from "./configuration.ts";
import type { FlagValues } from "./flags.ts";
import { ConfigurationError } from "./configuration_error.ts";
import { loadConfiguration, type LoadDependencies, type LoadedConfiguration } from "./load.ts";
import { routingSettingsOf } from "./parse_routing.ts";

/** The interval at which the file is checked. */
const POLL_MS = 1_000;
/** Writers need several steps: a file is complete when it has stayed the same for this time. */
const SETTLE_MS = 100;
/** A file that never settles is read after this time. */
const LONGEST_SETTLE_MS = 2_000;
/**
 * Maximum number of problems that are logged. A file of another kind has one in each line, and the
 * throttle of the log would then suppress the problems of the next attempt.
 */
const MOST_PROBLEMS = 3;

/** The file has changes that need a restart. */
export class ConfigurationChanged extends Error {
  override name = "ConfigurationChanged";
  constructor(readonly file: string, readonly fields: readonly string[]) {
    super(
      `Exiting because of configuration file '${file}': ${fields.join(", ")} changed, ` +
        "which needs a restart by the supervisor",
    );
  }
}

/** The running configuration, and the receivers of changes. */
interface WatchConfigurationOptions {
  /** Includes `--config`. Flags that have precedence over the file keep it. */
  readonly flags: FlagValues & { readonly config: string };
  /** The configuration loaded at the start. */
  readonly current: LoadedConfiguration;
  /** The running mode. */
  readonly mode: BackendMode;
  /** Applies the named fields. The configuration is that of the running mode. */
  readonly onApplicable: (configuration: LoadedConfiguration, fields: readonly string[]) => void;
  /**
   * Called for each change, but not for the first read, which finds the content read at the start.
   */
  readonly onResult: (result: "applied" | "restart" | "unchanged" | "refused") => void;
  readonly signal: AbortSignal;
}

/**
 * Watches until the signal is aborted. Detects new content that is written in place, renamed over the
 * file, or reached by a swapped symlink, as in a mounted ConfigMap. If the file is invalid or missing,
 * the last valid configuration stays in effect. Rejects with {@linkcode ConfigurationChanged} if a
 * change needs a restart.
 */
export async function watchConfiguration(
  dependencies: LoadDependencies & { readonly clock: Clock; readonly logger: Logger },
  options: WatchConfigurationOptions,
): Promise<void> {
  const { clock, logger } = dependencies;
  const { flags, onResult, signal } = options;
  const file = flags.config;
  let current = options.current;
  let isFirst = true;
  for (let read: string | undefined | null = null; !signal.aborted;) {
    const version = await settledVersion(clock, file, read);
    if (version === read) {
      await clock.sleep(POLL_MS, signal).catch(() => {});
      continue;
    }
    read = version;
    if (version === undefined) {
      logger.warn("Configuration file was removed; the last valid configuration stays in use", {
        file,
      });
      continue;
    }
    try {
      const next = await loadConfiguration(dependencies, { flags });
      current = take(logger, options, { current, next, isFirst });
      isFirst = false;
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      onResult("refused");
      const message = "Configuration file is invalid; the last valid configuration stays in use";
      const more = error.problems.length - MOST_PROBLEMS;
      for (const [index, problem] of error.problems.slice(0, MOST_PROBLEMS).entries()) {
        const isLast = index === MOST_PROBLEMS - 1;
        logger.error(message, { file, problem, ...(isLast && more > 0 && { more }) });
      }
    }
  }
}

/** Returns the version at which a file has settled; at once if it is still the given one. */
async function settledVersion(
  clock: Clock,
  path: string,
  read: string | undefined | null,
): Promise<string | undefined> {
  // A file that cannot be inspected counts as gone.
  const look = async () => (await fileState(path).catch(() => undefined))?.version;
  const deadline = clock.now() + LONGEST_SETTLE_MS;
  let version = await look();
  if (version === read) return version;
  for (;;) {
    await clock.sleep(SETTLE_MS);
    const next = await look();
    if (next === version || clock.now() >= deadline) return next;
    version = next;
  }
}

/**
 * Applies what can be applied, and returns the configuration that is in effect then. Throws
 * {@linkcode ConfigurationChanged} if something remains.
 */
function take(
  logger: Logger,
  { flags: { config: file }, mode, onApplicable, onResult }: WatchConfigurationOptions,
  { current, next, isFirst }: {
    readonly current: LoadedConfiguration;
    readonly next: LoadedConfiguration;
    readonly isFirst: boolean;
  },
): LoadedConfiguration {
  const [before, after] = [current, next].map(({ proxy }) => effectiveConfiguration(proxy, mode));
  const { applicable, others } = changedFields(before!, after!, mode);
  // The running mode may now be requested explicitly instead of by default.
  const isSameMode = next.mode === mode || next.mode === current.mode;
  if (others.length > 0 || !isSameMode) {
    onResult("restart");
    throw new ConfigurationChanged(file, isSameMode ? others : ["mode", ...others]);
  }
  if (applicable.length === 0) {
    if (!isFirst) onResult("unchanged");
    logger.verbose(2, "Configuration file has the same content as before", { file });
    return current;
  }
  for (const { level, message, fields } of next.notices) logger[level](message, fields);
  onApplicable({ ...next, proxy: after! }, applicable);
  onResult("applied");
  const fields = applicable.join(", ");
  logger.info("Applied changes of the configuration file", { file, fields });
  return next;
}

/** Fields that only affect the log and the plans. */
const APPLICABLE: readonly RegExp[] = [
  /^logging\.(verbosity|vmodule)$/,
  /^(clusterCIDR|detectLocalMode|nodePortAddresses)$/,
  /^detectLocal\./,
  /^(iptables|nftables)\.masqueradeAll$/,
  /^networkPolicy\.(start|deny|logPerMinute|cutConnections)$/,
  /^routing\.(loadBalancerClasses|defaultLoadBalancerClass|announce|pools|layer2\.interfaces)$/,
  /^routing\.bgp\.(enabled|localAs|routerId|mesh|nodeAnnotations|peers|externalIpRanges)$/,
  /^routing\.bgp\.(communities|largeCommunities|localPreference|(advertise|imports)\..*)$/,
];

/** Fields that decide which parts of routing exist. Pools need objects to be followed, with permissions. */
const FIELDS_OF_PARTS = /^routing\.(announce|objects|pools|bgp\.enabled)$/;

/** Fields that nothing reads. */
const WITHOUT_EFFECT = /^(winkernel\..*|windowsRunAsService|portRange|configSyncPeriod)$/;

/** All blocks that a mode reads, by the one with its periods. Mode ipvs writes iptables rules. */
const BLOCKS_READ: Readonly<Record<string, readonly string[]>> = {
  iptables: ["iptables"],
  ipvs: ["iptables", "ipvs"],
  nftables: ["nftables"],
};

/**
 * Returns the fields that differ and have an effect in the running mode, e.g. `iptables.syncPeriod`:
 * those that a running process can apply, and those that only take effect after a restart.
 */
export function changedFields(
  before: KubeProxyConfiguration,
  after: KubeProxyConfiguration,
  mode: BackendMode,
): { readonly applicable: readonly string[]; readonly others: readonly string[] } {
  const disabled: readonly string[] = (["networkPolicy", "routing"] as const)
    .filter((block) => !before[block].enabled && !after[block].enabled);
  const read = BLOCKS_READ[MODE_TRAITS[mode].configurationBlock]!;
  const fields = differences(before, after).filter((field) => {
    const block = field.split(".")[0]!;
    return !disabled.includes(block) && !WITHOUT_EFFECT.test(field) &&
      (!(block in BLOCKS_READ) || read.includes(block));
  });
  // A part without a task is kept; one that the process does not have, such as Leases, needs a start.
  const lacksPart = () => {
    const [present, needed] = [before, after]
      .map(({ routing }) => routingPartsOf(routingSettingsOf(routing)));
    return !needed!.isSubsetOf(present!);
  };
  const { applicable = [], others = [] } = Object.groupBy(
    fields,
    (field) =>
      APPLICABLE.some((pattern) => pattern.test(field)) &&
        !(FIELDS_OF_PARTS.test(field) && lacksPart())
        ? "applicable"
        : "others",
  );
  return { applicable, others };
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
