import { type IpvsStep, stepSize } from "./steps.ts";

/** Counts, never estimates. */
export class WriteFigures {
  readonly #counts = new Map<string, number>();

  /** A step was carried out. */
  add(step: IpvsStep): void {
    this.#count("processes", 1);
    this.#count(step.tool, stepSize(step));
  }

  /** The kernel was read. */
  read(): void {
    this.#count("reads", 1);
  }

  /** Lines for each tool, processes and reads, by name. */
  get operations(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  #count(name: string, by: number): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + by);
  }
}
