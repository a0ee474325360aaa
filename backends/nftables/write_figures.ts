import type { TableDifference } from "./diff.ts";

/** Counts of one sync, or of one repair. */
export class WriteFigures {
  /** Listings of the whole table. */
  reads = 0;
  /** Runs of `nft -f`, refused ones too. */
  transactions = 0;
  /** Lines of accepted input. */
  lines = 0;
  bytes = 0;
  /** Elements added or deleted. */
  elements = 0;
  /** Chains that were created or rewritten. */
  chains = 0;
  removedChains = 0;
  /** Chains, sets and maps that differed from the last known state. */
  changedObjects = 0;
  /** The names of these tables, except for dormant ones. */
  readonly changed: string[] = [];

  /** A transaction was accepted. */
  add({ transaction: { characters, elements, lineCount }, applied }: TableDifference): void {
    this.bytes += characters;
    this.lines += lineCount;
    this.elements += elements;
    this.chains += applied.chains.length;
    this.removedChains += applied.removedChains?.length ?? 0;
  }

  /** For the report of a sync; zero ones left out. */
  get operations(): Record<string, number> {
    const { reads, transactions, lines, bytes, elements, chains, removedChains } = this;
    const counts = { reads, transactions, lines, bytes, elements, chains, removedChains };
    return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
  }
}
