import type { Logger } from "../../log/logger.ts";
import { RecentTexts } from "../../log/recent_texts.ts";
import type { Clock } from "../../os/clock.ts";
import { cureOf, kindsText, unservedKinds } from "./ignored_kinds.ts";
import type { ManifestFileRecord } from "./manifest_files.ts";
import type { ManifestProblem } from "./manifest_problem.ts";
import { mergeProblems } from "./manifest_status.ts";
import type { ShadowedObject, StoreChanges } from "./manifest_store.ts";

/** Maximum number of problem lines within {@linkcode LINES_MS}; `status` shows the others. */
const MOST_LINES = 20;
const LINES_MS = 60_000;
/** After this time, the log reports that the first reading is slow. */
const LONG_MS = 10_000;
/** Maximum number of file names in one line. */
const MOST_FILES = 5;
/** Maximum number of kinds that are reported as not served. */
const MOST_KINDS = 100;

/** The result of a reading. */
interface ManifestReadingSummary {
  readonly changes: StoreChanges;
  readonly ms: number;
  readonly records: ReadonlyMap<string, ManifestFileRecord>;
  readonly shadowed: ReadonlyMap<string, readonly ShadowedObject[]>;
}

/** Writes the log lines of a manifest source. */
export class ManifestLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #recent: RecentTexts;
  #lines = 0;
  /** The time at which the first of these lines was written. */
  #linesSince = -Infinity;
  #isIncompleteLogged = false;
  /** Kinds that were reported as not served. */
  readonly #unserved = new Set<string>();
  #missing: ReadonlyMap<string, string> = new Map();

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#logger = logger.with({ component: "manifests" });
    this.#clock = clock;
    this.#recent = new RecentTexts({ clock });
  }

  /** Reports paths without a file, once while that lasts. */
  missing(missing: ReadonlyMap<string, string>): void {
    for (const [path, reason] of missing) {
      if (this.#missing.get(path) === reason) continue;
      this.#logger.warn("Cannot read manifests; they are read once they appear", { path, reason });
    }
    this.#missing = missing;
  }

  /** Reports once that the first reading of the files is slow, and why. */
  incomplete(startedAt: number, underWay: ReadonlySet<string>): void {
    if (this.#isIncompleteLogged || this.#clock.now() - startedAt < LONG_MS) return;
    this.#isIncompleteLogged = true;
    const message = "Manifests are still being read; Services of those read so far are served";
    const files = [...underWay].slice(0, MOST_FILES);
    this.#logger.warn(message, { files, more: underWay.size - files.length });
  }

  /** Reports the result of reading files. */
  read(paths: readonly string[], summary: ManifestReadingSummary): void {
    const { changes, ms, records, shadowed } = summary;
    let [problems, logged] = [0, 0];
    const unserved = new Map<string, number>();
    const inFiles = new Set<string>();
    for (const path of paths) {
      const record = records.get(path);
      if (!record) continue;
      for (const [kind, count] of unservedKinds(record.ignored)) {
        if (this.#unserved.has(kind) || this.#unserved.size >= MOST_KINDS) continue;
        unserved.set(kind, (unserved.get(kind) ?? 0) + count);
        inFiles.add(path);
      }
      const found = mergeProblems(record.problems, shadowed.get(path) ?? []);
      problems += found.list.length + found.notShown + record.problems.notShown;
      for (const problem of found.list) {
        if (this.#isLogged(problem)) logged++;
      }
    }
    this.#warnUnserved(unserved, [...inFiles]);
    this.#logger.info("Read manifests", {
      files: paths.length <= MOST_FILES ? paths : paths.length,
      ...changes,
      ms: Math.round(ms),
      // Nothing else reminds the user of problems that were already logged.
      ...(problems > logged && { problems, moreIn: "status" }),
    });
  }

  /**
   * Logs a problem unless it was logged within the last hour: a program may write a bad file many
   * times a second. Ignores the line number, which changes when earlier text is edited.
   */
  #isLogged({ severity, path, message, ...place }: ManifestProblem): boolean {
    const now = this.#clock.now();
    if (now - this.#linesSince >= LINES_MS) [this.#lines, this.#linesSince] = [0, now];
    if (this.#lines >= MOST_LINES) return false;
    if (!this.#recent.isNews([place.file, place.object, path, place.value, message].join("\n"))) {
      return false;
    }
    this.#lines++;
    const fields = { ...place, field: path, reason: message };
    if (severity === "error") this.#logger.error("Cannot use parts of the manifests", fields);
    else this.#logger.warn("Manifest may have another effect than intended", fields);
    return true;
  }

  /** Warns once of each kind: other programs may read it from the same files. */
  #warnUnserved(kinds: ReadonlyMap<string, number>, files: readonly string[]): void {
    if (kinds.size === 0) return;
    for (const kind of kinds.keys()) this.#unserved.add(kind);
    const cure = cureOf(kinds);
    this.#logger.warn("The manifests have objects of kinds that are not served; they are ignored", {
      kinds: kindsText(kinds),
      files: files.toSorted().slice(0, MOST_FILES),
      ...(files.length > MOST_FILES && { more: files.length - MOST_FILES }),
      ...(cure !== undefined && { cure }),
    });
  }
}
