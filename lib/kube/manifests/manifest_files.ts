/**
 * The manifest files and what was last read of each.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import { type ManifestFileContent, readManifestFile } from "./manifest_file.ts";
import type { ManifestFileState, ManifestFileSystem } from "./manifest_file_system.ts";
import { keepLastGood } from "./manifest_last_good.ts";
import { ManifestProblems } from "./manifest_problem.ts";
import type { FileObjects } from "./manifest_store.ts";
import { StringTable } from "../string_table.ts";
import { TimeSlice } from "../time_slice.ts";

/**
 * A file that vanishes or becomes empty is believed to have done so after this time. Programs that
 * don't rename a new file over the old one leave such a moment, and it must not cost a connection.
 */
export const CONFIRM_MS = 300;

/** Larger files are refused: a file has to fit into memory several times over. */
const LARGEST_FILE = 64 * 1024 * 1024;

/** What is known of one file. */
export interface ManifestFileRecord {
  /** Of the content that was read last; `undefined` until then. */
  readonly version?: string;
  readonly problems: ManifestProblems;
  /** Wall-clock milliseconds at which it was last read without an error. */
  readonly lastGoodAtMs?: number;
  /** Whether the last good version of something stays in force, or something was left out, for an error. */
  readonly isStale: boolean;
  /** Since when the file looks gone or empty while it had objects (clock time). */
  readonly suspectSince?: number;
  readonly ignored: ReadonlyMap<string, number>;
}

/** What a look at a file tells. */
export type FileLook =
  | { readonly look: "unchanged" }
  /** It looks gone; look again after {@linkcode CONFIRM_MS}. */
  | { readonly look: "suspect" }
  | { readonly look: "changed"; readonly objects: FileObjects };

/** How to look at a file. */
export interface LookOptions {
  /** What it gave last time. */
  readonly previous: FileObjects;
  /** Read it even if its version is the one that was read: versions have only milliseconds. */
  readonly isForced: boolean;
  /** Whether it still belongs to the paths. */
  readonly isListed: boolean;
}

/** Edges of {@linkcode ManifestFiles}. */
export interface ManifestFilesDependencies {
  readonly clock: Clock;
  readonly fileSystem: ManifestFileSystem;
}

const UNCHANGED: FileLook = { look: "unchanged" };
const NOTHING: FileObjects = new Map();
const NO_RECORD: Partial<ManifestFileRecord> & Pick<ManifestFileRecord, "ignored"> = {
  ignored: new Map(),
};

/** Reads manifest files when they have changed, and remembers what is wrong with them. */
export class ManifestFiles {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #nodeName: string;
  readonly #strings = new StringTable();
  readonly #records = new Map<string, ManifestFileRecord>();

  constructor({ clock, fileSystem }: ManifestFilesDependencies, nodeName: string) {
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#nodeName = nodeName;
  }

  /** What is known of each file, by path. */
  get records(): ReadonlyMap<string, ManifestFileRecord> {
    return this.#records;
  }

  /** Looks at a file and reads it if need be. Never rejects for what the file is or holds. */
  async look(path: string, options: LookOptions): Promise<FileLook> {
    const { previous, isForced, isListed } = options;
    const record = this.#records.get(path);
    let state: ManifestFileState | undefined;
    let text: string;
    try {
      state = isListed ? await this.#fileSystem.stat(path) : undefined;
      if (!state) return this.#gone(path, previous);
      const isKnown = state.version === record?.version && record.suspectSince === undefined;
      if (isKnown && !isForced) return UNCHANGED;
      checkReadable(state);
      text = await this.#fileSystem.readText(path);
    } catch (error) {
      return this.#unreadable(path, { error, previous });
    }
    if (text.trim() === "" && previous.size > 0 && this.#isSuspect(path)) {
      return { look: "suspect" };
    }
    const dependencies = { clock: this.#clock, strings: this.#strings };
    const reading = { file: path, nodeName: this.#nodeName };
    const content = await readManifestFile(text, dependencies, reading);
    const objects = await keepLastGood(previous, content, new TimeSlice(this.#clock));
    this.#records.set(path, this.#recordOf(content, { version: state.version, record }));
    return { look: "changed", objects };
  }

  #recordOf(
    content: ManifestFileContent,
    last: { readonly version: string; readonly record: ManifestFileRecord | undefined },
  ): ManifestFileRecord {
    const isStale = content.isIncomplete || content.refused.size > 0;
    const lastGoodAtMs = isStale ? last.record?.lastGoodAtMs : this.#clock.wallNow();
    return {
      version: last.version,
      problems: content.problems,
      isStale,
      ...(lastGoodAtMs !== undefined && { lastGoodAtMs }),
      ignored: content.ignored,
    };
  }

  #gone(path: string, previous: FileObjects): FileLook {
    if (!this.#records.has(path)) return UNCHANGED;
    if (previous.size > 0 && this.#isSuspect(path)) return { look: "suspect" };
    this.#records.delete(path);
    return { look: "changed", objects: NOTHING };
  }

  /** Whether a file that looks gone may be back in a moment. Notes when it was first seen so. */
  #isSuspect(path: string): boolean {
    const record = this.#records.get(path);
    if (!record) return false;
    const since = record.suspectSince ?? this.#clock.now();
    this.#records.set(path, { ...record, suspectSince: since });
    return this.#clock.now() - since < CONFIRM_MS;
  }

  /** What was read of it before stays in force. Without a version it is tried again at each look. */
  #unreadable(
    path: string,
    { error, previous }: { readonly error: unknown; readonly previous: FileObjects },
  ): FileLook {
    const { suspectSince: _, version: __, ...record } = this.#records.get(path) ?? NO_RECORD;
    const problems = new ManifestProblems(path);
    const message = `Cannot read manifest: ${error instanceof Error ? error.message : error}`;
    problems.add(
      { severity: "error", path: "", value: "", message },
      () => ({ line: 1, column: 1 }),
    );
    this.#records.set(path, { ...record, problems, isStale: true });
    const isNews = record.problems?.list[0]?.message !== message;
    return isNews ? { look: "changed", objects: previous } : UNCHANGED;
  }
}

function checkReadable({ kind, size }: ManifestFileState): void {
  // A pipe would never end.
  if (kind !== "file") throw new TypeError("it is no regular file");
  if (size > LARGEST_FILE) {
    throw new RangeError(`it has ${size} bytes; at most ${LARGEST_FILE} are accepted, split it`);
  }
}
