/** Memory of all workers: of threads, or a part of the file that all data processes have mapped. */
export type MemoryRegion = SharedArrayBuffer | FileRegion;

/** Bytes of a file, from a multiple of {@linkcode PAGE_BYTES} on. */
export interface FileRegion {
  readonly at: number;
  readonly bytes: number;
}

/** Allocates memory, which is zero. */
export interface SharedMemory {
  allocate(bytes: number): MemoryRegion;
  /** No worker uses it any more. */
  free(region: MemoryRegion): void;
  /** Someone uses this region. */
  keep(region: MemoryRegion): void;
}

/** The memory of threads. */
export const THREAD_MEMORY: SharedMemory = {
  allocate: (bytes) => new SharedArrayBuffer(bytes),
  free() {},
  keep() {},
};

/** Bytes of which each region has a multiple. */
export const PAGE_BYTES = 4096;

/** The most that processes map: addresses only, pages are those that something is written to. */
export const MAPPED_BYTES = 2 ** 36;

/** The file of data processes, of which this process maps nothing: that takes system calls of its own. */
export class FileMemory implements SharedMemory {
  readonly #file: Deno.FsFile;
  #size: number;
  #end = 0;
  readonly #free = new Map<number, FileRegion[]>();

  constructor(file: Deno.FsFile) {
    this.#file = file;
    this.#size = file.statSync().size;
  }

  allocate(bytes: number): FileRegion {
    const freed = this.#free.get(bytes)?.pop();
    if (freed) {
      this.#file.seekSync(freed.at, Deno.SeekMode.Start);
      for (let left = bytes; left > 0;) left -= this.#file.writeSync(new Uint8Array(left));
      return freed;
    }
    const region = { at: this.#end, bytes };
    this.#end += PAGE_BYTES * Math.ceil(bytes / PAGE_BYTES);
    if (this.#end > MAPPED_BYTES) throw new RangeError("Cannot share more memory");
    if (this.#end > this.#size) this.#file.truncateSync(this.#size = this.#end);
    return region;
  }

  free(region: MemoryRegion): void {
    if (region instanceof SharedArrayBuffer) return;
    const free = this.#free.get(region.bytes) ?? [];
    free.push(region);
    this.#free.set(region.bytes, free);
  }

  /** What else lies in the file as it was found may have any content. */
  keep(): void {
    this.#end = this.#size;
  }

  close(): void {
    this.#file.close();
  }
}
