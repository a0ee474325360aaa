/**
 * Looks at manifest files, several at a time. One that takes long holds up no other.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import type { ManifestFiles } from "./manifest_files.ts";
import type { FileObjects, ManifestStore } from "./manifest_store.ts";

/** Files that are waited for at a time: of many small ones most of the time is waiting. */
const LANES = 8;
/** A look that takes longer goes on by itself, and the lane takes the next file. */
const PATIENCE_MS = 1_000;
/** Looks under way at which no further one is begun: a file system that hangs takes a thread for each. */
const MOST_UNDER_WAY = 64;

/** How to look at files. */
interface LookAtOptions {
  /** Whether a file still belongs to the paths. */
  readonly isListed: (path: string) => boolean;
  /** Whether files that have changed are left alone until they stay as they are. */
  readonly waitsForQuiet: boolean;
  readonly signal: AbortSignal;
}

/** What {@linkcode ManifestReader} needs. */
interface ManifestReaderDependencies {
  readonly clock: Clock;
  readonly files: ManifestFiles;
  readonly store: Pick<ManifestStore, "objectsOf">;
}

/** The looks under way, those to come, and what was found and is not published. */
export class ManifestReader {
  readonly #clock: Clock;
  readonly #files: ManifestFiles;
  readonly #store: Pick<ManifestStore, "objectsOf">;
  readonly #underWay = new Set<string>();
  /** When a file is to be looked at again (clock time). */
  readonly #later = new Map<string, number>();
  #read = new Map<string, FileObjects>();
  #readSince: number | undefined;
  #wake: () => void = () => {};

  constructor({ clock, files, store }: ManifestReaderDependencies) {
    this.#clock = clock;
    this.#files = files;
    this.#store = store;
  }

  /** Files that are being looked at. */
  get underWay(): ReadonlySet<string> {
    return this.#underWay;
  }

  /** Takes the files that are to be looked at again by now. */
  takeDue(): string[] {
    const now = this.#clock.now();
    const due: string[] = [];
    for (const [path, at] of this.#later) if (at <= now) due.push(path);
    for (const path of due) this.#later.delete(path);
    return due;
  }

  /** Takes the files that were read, and how long that took. */
  takeRead(): { readonly files: ReadonlyMap<string, FileObjects>; readonly ms: number } {
    const files = this.#read;
    const ms = this.#clock.now() - (this.#readSince ?? this.#clock.now());
    this.#read = new Map();
    this.#readSince = undefined;
    return { files, ms };
  }

  /**
   * Looks at files. Resolves once each has been looked at or takes long, to whether all were begun with.
   */
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

  /** Whether something ends within `ms`. An abort ends it too. */
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

  /** Waits for `ms`, or less: until a look is due, one that took long has ended, or an abort. */
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
