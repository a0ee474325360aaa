/**
 * Input for one process: `ipset restore` and `ip -batch -` stop at the first line that fails,
 * `iptables-restore --noflush` takes each table as a whole or not at all. `ipvsadm -R` continues after
 * a failure and may not report it: only reading back shows what it did.
 */
export interface IpvsStep {
  readonly tool: "ip" | "ipset" | "iptables" | "ipvsadm";
  readonly lines: readonly string[];
}

/** Counts, never estimates. */
export class WriteFigures {
  readonly #counts = new Map<string, number>();

  /** A step was carried out. */
  add({ tool, lines }: IpvsStep): void {
    this.#count("processes", 1);
    this.#count(tool, lines.length);
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
