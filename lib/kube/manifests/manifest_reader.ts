/**
 * Checks several manifest files at a time. A slow file does not delay the others.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import type { ManifestFiles } from "./manifest_files.ts";
import type { FileObjects, ManifestStore } from "./manifest_store.ts";

/** Number of concurrent checks: for many small files most of the time is waiting. */
const LANES = 8;
/** A slower check continues in the background, and the lane takes the next file. */
const PATIENCE_MS = 1_000;
/** Limit of unfinished checks: in a hanging file system, each occupies a thread. */
const MOST_UNDER_WAY = 64;

/** The options for checking files. */
interface LookAtOptions {
  /** Whether a file still belongs to the paths. */
  readonly isListed: (path: string) => boolean;
  /** Whether to wait until changed files stay unchanged. */
  readonly waitsForQuiet: boolean;
  readonly signal: AbortSignal;
}

/** Dependencies of {@linkcode ManifestReader}. */
interface ManifestReaderDependencies {
  readonly clock: Clock;
  readonly files: ManifestFiles;
  readonly store: Pick<ManifestStore, "objectsOf">;
}

/** The running and the scheduled checks, and unpublished results. */
export class ManifestReader {
  readonly #clock: Clock;
  readonly #files: ManifestFiles;
  readonly #store: Pick<ManifestStore, "objectsOf">;
  readonly #underWay = new Set<string>();
  /** The time at which a file is checked again (clock time). */
  readonly #later = new Map<string, number>();
  #read = new Map<string, FileObjects>();
  #readSince: number | undefined;
  #wake: () => void = () => {};

  constructor({ clock, files, store }: ManifestReaderDependencies) {
    this.#clock = clock;
    this.#files = files;
    this.#store = store;
  }

  /** Files that are being checked. */
  get underWay(): ReadonlySet<string> {
    return this.#underWay;
  }

  /** Removes and returns the files whose next check is due. */
  takeDue(): string[] {
    const now = this.#clock.now();
    const due: string[] = [];
    for (const [path, at] of this.#later) if (at <= now) due.push(path);
    for (const path of due) this.#later.delete(path);
    return due;
  }

  /** Takes the files that were read, and the duration. */
  takeRead(): { readonly files: ReadonlyMap<string, FileObjects>; readonly ms: number } {
    const files = this.#read;
    const ms = this.#clock.now() - (this.#readSince ?? this.#clock.now());
    this.#read = new Map();
    this.#readSince = undefined;
    return { files, ms };
  }

  /** Checks files. Resolves once each has been checked or is slow, to whether all were started. */
  async lookAt(paths: readonly string[], options: LookAtOptions): Promise<boolean> {
    const { signal } = options;
    let isWhole = true;
    const waiting = paths.values();
    const lane = async () => {
      for (const path of waiting) {
        if (signal.aborted) return;
        if (this.#underWay.has(path)) continue;
        if (this.#underWay.size >= MOST_UNDER_WAY) return void (isWhole = false);
        const looking = this.#look(path, options);
        await this.endsIn(PATIENCE_MS, { looking, signal });
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return isWhole;
  }

  /** Returns whether a check ends within `ms`. An abort ends the wait too. */
  endsIn(
    ms: number,
    { looking, signal }: { readonly looking: Promise<unknown>; readonly signal: AbortSignal },
  ): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (hasEnded: boolean) => {
        timer.cancel();
        signal.removeEventListener("abort", onAbort);
        resolve(hasEnded);
      };
      const onAbort = () => end(true);
      const timer = this.#clock.setTimer(ms, () => end(false));
      signal.addEventListener("abort", onAbort);
      void looking.then(() => end(true));
    });
  }

  /** Waits for `ms`, or until a check is due, a slow one has ended, or an abort. */
  async wait(ms: number, signal: AbortSignal): Promise<void> {
    let until = this.#clock.now() + ms;
    for (const at of this.#later.values()) until = Math.min(until, at);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    if (this.#read.size > 0) resolve();
    await this.endsIn(Math.max(0, until - this.#clock.now()), { looking: promise, signal });
  }

  async #look(path: string, { isListed, waitsForQuiet }: LookAtOptions): Promise<void> {
    this.#underWay.add(path);
    this.#later.delete(path);
    const startedAt = this.#clock.now();
    const previous = this.#read.get(path) ?? this.#store.objectsOf(path);
    const options = { previous, isListed: isListed(path), waitsForQuiet };
    const look = await this.#files.look(path, options);
    this.#underWay.delete(path);
    if (look.look === "later") this.#later.set(path, this.#clock.now() + look.ms);
    if (look.look === "changed") {
      this.#read.set(path, look.objects);
      this.#readSince = Math.min(this.#readSince ?? startedAt, startedAt);
    }
    this.#wake();
  }
}
