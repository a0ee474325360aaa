import { cureOf, kindsText, unservedKinds } from "./ignored_kinds.ts";
import type { ManifestFiles } from "./manifest_files.ts";
import { type ManifestProblem, ManifestProblems } from "./manifest_problem.ts";
import type { ManifestStore, ShadowedObject } from "./manifest_store.ts";

/** One manifest file, or a path without a file. */
export interface ManifestFileStatus {
  readonly path: string;
  /** Number of objects in it, including those that another file has too. */
  readonly objects: number;
  /** The first hundred. */
  readonly problems: readonly ManifestProblem[];
  /** Number of further problems. */
  readonly problemsNotShown: number;
  /** Milliseconds since 1970 at which it was last read without an error. */
  readonly lastGoodAtMs?: number;
  /** Whether an error keeps the last valid version of an object in use, or excluded an object. */
  readonly stale: boolean;
  /** Names the kinds of objects in it that are not served; absent if there are none. */
  readonly unserved?: string;
  /** The reason why the path has no file; absent for a file. */
  readonly missing?: string;
}

/** Inputs of {@linkcode manifestStatus}. */
interface ManifestState {
  readonly files: ManifestFiles;
  readonly store: ManifestStore;
  /** Paths without a file, and why. */
  readonly missing: ReadonlyMap<string, string>;
}

/** Maximum number of files in a status: 100,000 would block the event loop for half a second. */
const MOST_FILES = 1_000;

/** Returns how many files a status leaves out. */
export function filesNotShown({ files, missing }: Omit<ManifestState, "store">): number {
  return Math.max(0, files.records.size + missing.size - MOST_FILES);
}

/** The state of each file, sorted by path. If there are too many, those with problems precede. */
export function manifestStatus({ files, store, missing }: ManifestState): ManifestFileStatus[] {
  const shadowed = store.shadowed();
  const found = [...missing].slice(0, MOST_FILES).map(([path, reason]): ManifestFileStatus => ({
    path,
    objects: 0,
    problems: [missingProblem(path, reason)],
    problemsNotShown: 0,
    stale: false,
    missing: reason,
  }));
  const [bad, good]: [string[], string[]] = [[], []];
  for (const [path, { problems }] of files.records) {
    (problems.list.length > 0 || shadowed.has(path) ? bad : good).push(path);
  }
  const room = MOST_FILES - found.length;
  for (const path of [...bad.slice(0, room), ...good.slice(0, Math.max(0, room - bad.length))]) {
    const record = files.records.get(path)!;
    const problems = mergeProblems(record.problems, shadowed.get(path) ?? []);
    found.push({
      path,
      objects: store.objectsOf(path).size,
      problems: problems.list,
      problemsNotShown: problems.notShown + record.problems.notShown,
      ...(record.lastGoodAtMs !== undefined && { lastGoodAtMs: record.lastGoodAtMs }),
      stale: record.isStale,
      ...unservedOf(record.ignored),
    });
  }
  return found.sort((left, right) => left.path < right.path ? -1 : 1);
}

function unservedOf(
  ignored: ReadonlyMap<string, number>,
): Pick<ManifestFileStatus, "unserved"> {
  const kinds = unservedKinds(ignored);
  const cure = cureOf(kinds);
  const text = `${kindsText(kinds)}${cure === undefined ? "" : ` (${cure})`}`;
  return kinds.size > 0 ? { unserved: text } : {};
}

/** Returns why a path has no objects. */
function missingProblem(path: string, reason: string): ManifestProblem {
  return {
    file: path,
    line: 1,
    column: 1,
    severity: "error",
    path: "",
    value: "",
    message: `Cannot read manifest: ${reason}; it is read once there is one`,
  };
}

/**
 * Returns the problems of a file, including objects that are unused because another file has them.
 */
export function mergeProblems(
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
  return merged;
}
