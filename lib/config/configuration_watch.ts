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
import type { ConfigurationBlock, KubeProxyConfiguration } from "./configuration.ts";
import { effectiveConfiguration } from "./configuration.ts";
import type { FlagValues } from "./flags.ts";
import { APPLICABLE_ROUTING, needsRoutingParts } from "./routing_reload.ts";
import {
  ConfigurationError,
  loadConfiguration,
  type LoadDependencies,
  type LoadedConfiguration,
} from "./load.ts";

/** The interval at which the file is checked. */
const POLL_MS = 1_000;
/** Writers need several steps: a file is complete when it has stayed the same for this time. */
const SETTLE_MS = 100;
/** A file that never settles is read after this time. */
const LONGEST_SETTLE_MS = 2_000;

/** The file and the receiver of changes. */
interface WatchFileOptions {
  readonly path: string;
  readonly signal: AbortSignal;
  /**
   * Called once at the start, and for each change; `false` = the file does not exist. A rejection
   * ends the watch.
   */
  readonly onChange: (exists: boolean) => Promise<void>;
}

/**
 * Watches until the signal is aborted. Detects new content that is written in place, renamed over the
 * file, or reached by a swapped symlink, as in a mounted ConfigMap.
 */
async function watchFile(
  { clock }: { readonly clock: Clock },
  { path, signal, onChange }: WatchFileOptions,
): Promise<void> {
  let reported: string | undefined | null = null;
  while (!signal.aborted) {
    const version = await settledVersion(clock, { path, reported });
    if (version === reported) {
      await clock.sleep(POLL_MS, signal).catch(() => {});
    } else {
      reported = version;
      await onChange(reported !== undefined);
    }
  }
}

/** Returns the version at which a file has settled; at once if it is still the reported one. */
async function settledVersion(
  clock: Clock,
  { path, reported }: { readonly path: string; readonly reported: string | undefined | null },
): Promise<string | undefined> {
  const deadline = clock.now() + LONGEST_SETTLE_MS;
  let version = await versionOf(path);
  if (version === reported) return version;
  for (;;) {
    await clock.sleep(SETTLE_MS);
    const next = await versionOf(path);
    if (next === version || clock.now() >= deadline) return next;
    version = next;
  }
}

/** A file that cannot be inspected counts as gone. */
async function versionOf(path: string): Promise<string | undefined> {
  return (await fileState(path).catch(() => undefined))?.version;
}

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

/** Dependencies for reading the file again. */
interface WatchConfigurationDependencies extends LoadDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The result of a change of the file, as the metric names it. */
type ReloadResult = "applied" | "restart" | "unchanged" | "refused";

/** The running configuration, and the receivers of changes. */
interface WatchConfigurationOptions {
  /** Includes `--config`. Flags that have precedence over the file keep it. */
  readonly flags: FlagValues & { readonly config: string };
  /** The configuration loaded at the start. */
  readonly current: LoadedConfiguration;
  /** The running mode. */
  readonly mode: BackendMode;
  /** Applies the named fields. The configuration is that of the running mode. */
  readonly onApplicable: (
    configuration: LoadedConfiguration,
    fields: readonly string[],
  ) => void;
  /**
   * Called for each change, but not for the first read, which finds the content read at the start.
   */
  readonly onResult: (result: ReloadResult) => void;
  readonly signal: AbortSignal;
}

/**
 * Watches until the signal is aborted. If the file is invalid or missing, the last valid
 * configuration stays in effect. Rejects with {@linkcode ConfigurationChanged} if a change needs a
 * restart.
 */
export async function watchConfiguration(
  dependencies: WatchConfigurationDependencies,
  options: WatchConfigurationOptions,
): Promise<void> {
  const { logger } = dependencies;
  const { flags, signal } = options;
  const path = flags.config;
  const tracker = new ConfigurationTracker(logger, options);
  await watchFile(dependencies, {
    path,
    signal,
    async onChange(exists) {
      if (!exists) {
        const file = path;
        logger.warn("Configuration file was removed; the last valid configuration stays in use", {
          file,
        });
        return;
      }
      try {
        tracker.take(await loadConfiguration(dependencies, { flags }));
      } catch (error) {
        if (!(error instanceof ConfigurationError)) throw error;
        options.onResult("refused");
        logProblems(logger, path, error.problems);
      }
    },
  });
}

/**
 * Maximum number of problems that are logged. A file of another kind has one in each line, and the
 * throttle of the log would then suppress the problems of the next attempt.
 */
const MOST_PROBLEMS = 3;

function logProblems(logger: Logger, file: string, problems: readonly string[]): void {
  const message = "Configuration file is invalid; the last valid configuration stays in use";
  for (const [index, problem] of problems.slice(0, MOST_PROBLEMS).entries()) {
    const more = index + 1 < MOST_PROBLEMS ? 0 : problems.length - MOST_PROBLEMS;
    logger.error(message, { file, problem, ...(more > 0 && { more }) });
  }
}

/** Compares a new configuration with the one in effect. */
class ConfigurationTracker {
  readonly #logger: Logger;
  readonly #options: WatchConfigurationOptions;
  #current: LoadedConfiguration;
  #hasLooked = false;

  constructor(logger: Logger, options: WatchConfigurationOptions) {
    this.#logger = logger;
    this.#options = options;
    this.#current = options.current;
  }

  /** Applies what can be applied. Throws {@linkcode ConfigurationChanged} if something remains. */
  take(next: LoadedConfiguration): void {
    const { flags, mode, onApplicable, onResult } = this.#options;
    const { applicable, others } = this.#compare(next);
    const isFirst = !this.#hasLooked;
    this.#hasLooked = true;
    if (others.length > 0) {
      onResult("restart");
      throw new ConfigurationChanged(flags.config, others);
    }
    const file = flags.config;
    if (applicable.length === 0) {
      if (!isFirst) onResult("unchanged");
      this.#logger.verbose(2, "Configuration file has the same content as before", { file });
      return;
    }
    for (const { level, message, fields } of next.notices) this.#logger[level](message, fields);
    this.#current = next;
    onApplicable({ ...next, proxy: effectiveConfiguration(next.proxy, mode) }, applicable);
    onResult("applied");
    this.#logger.info("Applied changes of the configuration file", {
      file,
      fields: applicable.join(", "),
    });
  }

  #compare(next: LoadedConfiguration): ChangedFields {
    const { mode } = this.#options;
    const before = effectiveConfiguration(this.#current.proxy, mode);
    const after = effectiveConfiguration(next.proxy, mode);
    const { applicable, others } = changedFields(before, after, mode);
    // The running mode may now be requested explicitly instead of by default.
    const isSameMode = next.mode === mode || next.mode === this.#current.mode;
    return { applicable, others: isSameMode ? others : ["mode", ...others] };
  }
}

/** Names of the fields that differ, e.g. `iptables.syncPeriod`. */
interface ChangedFields {
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
  ...APPLICABLE_ROUTING,
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
  const isApplicable = (field: string) =>
    APPLICABLE.some((pattern) => pattern.test(field)) &&
    !needsRoutingParts(field, { before: before.routing, after: after.routing });
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
