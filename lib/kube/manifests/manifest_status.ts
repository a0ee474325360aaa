/**
 * What `status` and the log say of manifests.
 *
 * @module
 */
import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { CLUSTER_NETWORK_POLICY } from "../../api/kinds/cluster_network_policy.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import type { Logger } from "../../log/logger.ts";
import { printableText } from "../../log/printable_text.ts";
import { RecentTexts } from "../../log/recent_texts.ts";
import type { Clock } from "../../os/clock.ts";
import { type ManifestProblem, ManifestProblems } from "./manifest_problem.ts";
import type { ManifestStore, ShadowedObject, StoreChanges } from "./manifest_store.ts";

/** Kinds that other parts of a run may read, and that ask for nothing by themselves. */
const SILENT: readonly string[] = [NAMESPACE.kind, LEASE.kind];
/** Maximum number of kinds that a text names. */
const MAX_NAMED_KINDS = 5;
/** Longest name of a kind in a text; the API accepts no longer one. */
const LONGEST_KIND = 63;

/** The state of one file that was read. */
export interface ManifestFileRecord {
  /** The version that was last read; `undefined` = read it in any case. */
  readonly version?: string | undefined;
  readonly problems: ManifestProblems;
  /** Wall-clock milliseconds at which it was last read without an error. */
  readonly lastGoodAtMs: number | undefined;
  /** Whether an error keeps the last valid version of an object in use, or excluded an object. */
  readonly isStale: boolean;
  /** Since when a file with objects looks gone or empty (clock time). */
  readonly suspectSince?: number;
  /** Numbers of objects of kinds that are not read. */
  readonly ignored: ReadonlyMap<string, number>;
}

/**
 * Names kinds with the number of their objects, such as `NetworkPolicy x2, Deployment x1`, and what serves
 * some of them.
 */
function describeKinds(counts: ReadonlyMap<string, number>): { names: string; cure?: string } {
  const isPolicy = (kind: string) =>
    kind === NETWORK_POLICY.kind || kind === CLUSTER_NETWORK_POLICY.kind;
  const rankOf = (kind: string) => `${isPolicy(kind) ? 0 : 1} ${kind}`;
  const named = [...counts]
    .sort(([one], [other]) => rankOf(one) < rankOf(other) ? -1 : 1)
    .slice(0, MAX_NAMED_KINDS)
    .map(([kind, count]) => `${printableText(kind.slice(0, LONGEST_KIND))} x${count}`);
  const more = counts.size - named.length;
  const names = more > 0 ? `${named.join(", ")} and ${more} more kinds` : named.join(", ");
  if (!counts.keys().some(isPolicy)) return { names };
  return { names, cure: "NetworkPolicies are enforced with --network-policy only" };
}

/** One manifest file, or a path without a file. */
export interface ManifestFileStatus {
  readonly path: string;
  /** Number of objects in it, including those that another file has too. */
  readonly objects: number;
  /** A hundred of them, errors before warnings. */
  readonly problems: readonly ManifestProblem[];
  /** Numbers of further problems. */
  readonly problemsNotShown: ManifestProblems["notShown"];
  /** Milliseconds since 1970 at which it was last read without an error. */
  readonly lastGoodAtMs?: number;
  /** Whether an error keeps the last valid version of an object in use, or excluded an object. */
  readonly stale: boolean;
  /** Names the kinds of objects in it that are not served; absent if there are none. */
  readonly unserved?: string;
  /** The reason why the path has no file; absent for a file. */
  readonly missing?: string;
}

/** Maximum number of files in the status of a proxy: 100,000 would block the event loop for half a second. */
const MAX_FILES = 1_000;

/** Returns how many files a status leaves out. */
export function filesNotShown(
  records: ReadonlyMap<string, ManifestFileRecord>,
  missing: ReadonlyMap<string, string>,
): number {
  return Math.max(0, records.size + missing.size - MAX_FILES);
}

/**
 * The state of each file and of each path without a file, with the reason; sorted by path. If there are
 * more than `most`, those with errors precede, then those with warnings.
 */
export function manifestStatus(
  records: ReadonlyMap<string, ManifestFileRecord>,
  store: ManifestStore,
  missing: ReadonlyMap<string, string>,
  most = MAX_FILES,
): ManifestFileStatus[] {
  const shadowed = store.shadowed();
  const found = [...missing].slice(0, most).map(([path, reason]): ManifestFileStatus => {
    const problems = new ManifestProblems(path);
    const message = `Cannot read manifest: ${reason}; it is read once there is one`;
    const problem = { severity: "error" as const, path: "", value: "", message };
    problems.add(problem, () => ({ line: 1, column: 1 }));
    const { list, notShown } = problems;
    return {
      ...{ path, objects: 0, problems: list, problemsNotShown: notShown },
      ...{ stale: false, missing: reason },
    };
  });
  const [bad, odd, good]: [string[], string[], string[]] = [[], [], []];
  for (const [path, { problems }] of records) {
    const isOdd = problems.list.length > 0 || shadowed.has(path);
    (problems.hasError ? bad : isOdd ? odd : good).push(path);
  }
  for (const path of [...bad, ...odd, ...good].slice(0, most - found.length)) {
    const record = records.get(path)!;
    const problems = mergeProblems(record.problems, shadowed.get(path) ?? []);
    const unserved = unservedKinds(record.ignored);
    const { names, cure } = describeKinds(unserved);
    found.push({
      path,
      objects: store.objectsOf(path).size,
      problems: problems.list,
      problemsNotShown: problems.notShown,
      ...(record.lastGoodAtMs !== undefined && { lastGoodAtMs: record.lastGoodAtMs }),
      stale: record.isStale,
      ...(unserved.size > 0 && { unserved: cure ? `${names} (${cure})` : names }),
    });
  }
  return found.sort((left, right) => left.path < right.path ? -1 : 1);
}

/** Returns the kinds that a user may expect to have an effect. */
function unservedKinds(ignored: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  return new Map([...ignored].filter(([kind]) => !SILENT.includes(kind)));
}

/**
 * Returns the problems of a file, including objects that are unused because another file has them.
 */
function mergeProblems(
  problems: ManifestProblems,
  shadowed: readonly ShadowedObject[],
): ManifestProblems {
  const merged = new ManifestProblems(problems.file);
  for (const problem of problems.list) merged.add(problem, () => problem);
  for (const { id, line, usedFile, usedLine, reason } of shadowed) {
    const message = `is not used: ${usedFile}:${usedLine} has it too, and ${reason}`;
    const problem = { severity: "warning" as const, object: id, path: "", value: "", message };
    merged.add(problem, () => ({ line, column: 1 }));
  }
  merged.notShown.error += problems.notShown.error;
  merged.notShown.warning += problems.notShown.warning;
  return merged;
}

/** Maximum number of problem lines within {@linkcode LINES_MS}; `status` shows the others. */
const MOST_LINES = 20;
const LINES_MS = 60_000;
/** After this time, the log reports that the first reading is slow. */
const LONG_MS = 10_000;
/** Maximum number of file names in one line. */
const MAX_NAMED_FILES = 5;
/** Maximum number of kinds that are reported as not served. */
const MAX_KINDS = 100;

/** Writes the log lines of a manifest source. */
export class ManifestLog {
  readonly #logger: Logger;
  readonly #recent: RecentTexts;
  #lines = 0;
  /** The time at which the first of these lines was written. */
  #linesSince = -Infinity;
  #isIncompleteLogged = false;
  /** Kinds that were reported as not served. */
  readonly #unserved = new Set<string>();
  #missing: ReadonlyMap<string, string> = new Map();

  constructor(private readonly clock: Clock, logger: Logger) {
    this.#logger = logger.with({ component: "manifests" });
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
  incomplete(startedAt: number, underWay: readonly string[]): void {
    if (this.#isIncompleteLogged || this.clock.now() - startedAt < LONG_MS) return;
    this.#isIncompleteLogged = true;
    const message = "Manifests are still being read; Services of those read so far are served";
    const files = underWay.slice(0, MAX_NAMED_FILES);
    this.#logger.warn(message, { files, more: underWay.length - files.length });
  }

  /** Reports the result of reading files, in `ms`; a deleted one has no record. */
  read(
    files: readonly (readonly [path: string, record: ManifestFileRecord | undefined])[],
    changes: StoreChanges,
    ms: number,
    shadowed: ReadonlyMap<string, readonly ShadowedObject[]>,
  ): void {
    let [problems, logged] = [0, 0];
    const unserved = new Map<string, number>();
    const inFiles = new Set<string>();
    for (const [path, record] of files) {
      if (!record) continue;
      for (const [kind, count] of unservedKinds(record.ignored)) {
        if (this.#unserved.has(kind) || this.#unserved.size >= MAX_KINDS) continue;
        unserved.set(kind, (unserved.get(kind) ?? 0) + count);
        inFiles.add(path);
      }
      const found = mergeProblems(record.problems, shadowed.get(path) ?? []);
      problems += found.list.length + found.notShown.error + found.notShown.warning;
      for (const problem of found.list) {
        if (this.#isLogged(problem)) logged++;
      }
    }
    this.#warnUnserved(unserved, [...inFiles]);
    this.#logger.info("Read manifests", {
      files: files.length <= MAX_NAMED_FILES ? files.map(([path]) => path) : files.length,
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
    const now = this.clock.now();
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
    const { names, cure } = describeKinds(kinds);
    this.#logger.warn("The manifests have objects of kinds that are not served; they are ignored", {
      kinds: names,
      files: files.toSorted().slice(0, MAX_NAMED_FILES),
      ...(files.length > MAX_NAMED_FILES && { more: files.length - MAX_NAMED_FILES }),
      ...(cure !== undefined && { cure }),
    });
  }
}
