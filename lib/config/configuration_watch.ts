/**
 * Reads the configuration file again whenever it changes.
 *
 * kube-proxy ends on an event of the file's inode, and so misses atomic saves and ConfigMaps
 * (kubernetes/kubernetes #57144, #94022). Here every change is seen, what a running process can take
 * up is taken up, and only for the rest it ends, to be started again by its supervisor.
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

/** The file says something that only a start takes up. */
export class ConfigurationChanged extends Error {
  override name = "ConfigurationChanged";
  constructor(readonly file: string, readonly fields: readonly string[]) {
    super(
      `Exiting because of configuration file '${file}': ${fields.join(", ")} changed, ` +
        "which needs a restart by the supervisor",
    );
  }
}

/** What is needed to read the file again. */
interface WatchConfigurationDependencies extends LoadDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** What came of a change of the file, by the words of the metric. */
type ReloadResult = "applied" | "restart" | "unchanged" | "refused";

/** What runs, and who takes up changes. */
interface WatchConfigurationOptions {
  /** With `--config`. Those that win over the file go on winning. */
  readonly flags: FlagValues & { readonly config: string };
  /** As it was loaded at the start. */
  readonly current: LoadedConfiguration;
  /** The mode that runs. */
  readonly mode: BackendMode;
  /** Takes up the fields named. The configuration is that of the mode that runs. */
  readonly onApplicable: (
    configuration: LoadedConfiguration,
    fields: readonly string[],
  ) => void;
  /** Told of each change, but not of the first look, which finds what was read at the start. */
  readonly onResult: (result: ReloadResult) => void;
  readonly signal: AbortSignal;
}

/**
 * Watches until the signal is aborted. A file that is wrong or gone leaves the last good
 * configuration in force. Rejects with {@linkcode ConfigurationChanged} when only a start helps.
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
        tellProblems(logger, path, error.problems);
      }
    },
  });
}

/**
 * Problems that are named. A file that is something else altogether has one in each line, and the log
 * holds back what it is told too often: then nothing would be said of the next try.
 */
const MOST_PROBLEMS = 3;

function tellProblems(logger: Logger, file: string, problems: readonly string[]): void {
  const message = "Configuration file is invalid; the last valid configuration stays in use";
  for (const [index, problem] of problems.slice(0, MOST_PROBLEMS).entries()) {
    const more = index + 1 < MOST_PROBLEMS ? 0 : problems.length - MOST_PROBLEMS;
    logger.error(message, { file, problem, ...(more > 0 && { more }) });
  }
}

/** Compares what was read with what is in force. */
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

  /** Takes up what can be taken up. Throws {@linkcode ConfigurationChanged} when that is not all. */
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
      this.#logger.verbose(2, "Configuration file says what it said before", { file });
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
    // What runs may be asked for in another way: by its name in place of nothing.
    const isSameMode = next.mode === mode || next.mode === this.#current.mode;
    return { applicable, others: isSameMode ? others : ["mode", ...others] };
  }
}
