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
import type { BackendMode } from "../proxy/backend.ts";
import { type ChangedFields, changedFields } from "./changed_fields.ts";
import { effectiveConfiguration } from "./effective_configuration.ts";
import type { FlagValues } from "./flags.ts";
import {
  ConfigurationError,
  loadConfiguration,
  type LoadDependencies,
  type LoadedConfiguration,
} from "./load.ts";
import { watchFile } from "./watched_file.ts";

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
