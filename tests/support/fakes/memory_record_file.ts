/**
 * A record of virtual servers in memory, which outlives the process of a test.
 *
 * @module
 */
import type { ServerRecordFile } from "../../../backends/ipvs/server_record_file.ts";

/** Counts writes; fails on demand. */
export class MemoryRecordFile implements ServerRecordFile {
  readonly path = "/state/ipvs.ipv4.json";
  text: string | undefined;
  /** The content that could not be parsed. */
  aside: string | undefined;
  saves = 0;
  /** The error of every read, write and move; `undefined` = they succeed. */
  problem: Error | undefined;

  load(): Promise<string | undefined> {
    return this.#do(() => this.text);
  }

  save(text: string): Promise<void> {
    return this.#do(() => {
      this.text = text;
      this.saves++;
    });
  }

  remove(): Promise<void> {
    return this.#do(() => void (this.text = undefined));
  }

  setAside(): Promise<string> {
    return this.#do(() => {
      this.aside = this.text;
      this.text = undefined;
      return `${this.path}.broken`;
    });
  }

  #do<T>(action: () => T): Promise<T> {
    return this.problem ? Promise.reject(this.problem) : Promise.resolve(action());
  }
}
