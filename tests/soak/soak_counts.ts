/**
 * What a soak counts, and how it judges figures over time.
 *
 * @module
 */

/** Work of the clients since the start. */
export interface SoakCounts {
  /** Requests over TCP that were answered completely. */
  tcp: number;
  /** Requests over UDP that were answered. */
  udp: number;
  /** Datagrams that were sent again, for instance while a flow moved. */
  resent: number;
  /** Requests without a complete answer. */
  lost: number;
  /** Changes of endpoints. */
  changes: number;
}

/** A look at the process and the counts. */
export interface SoakSample extends Readonly<SoakCounts> {
  readonly seconds: number;
  readonly residentMiB: number;
  readonly descriptors: number;
}

/** More than this share of growth is a leak. */
const MOST_GROWTH = 0.1;

/** How a figure has grown between two thirds of a run, the first third being the warm-up. */
export interface Growth {
  /** In the first third. */
  readonly first: number;
  readonly before: number;
  readonly after: number;
  readonly isLevel: boolean;
}

/**
 * Compares the medians of the second and the last third of a run, so that one look at a busy moment
 * decides nothing. Throws a RangeError for less than three figures.
 */
export function growthOf(figures: readonly number[]): Growth {
  const third = Math.floor(figures.length / 3);
  if (third === 0) throw new RangeError("Cannot judge less than three figures");
  const [first, before, after] = [
    medianOf(figures.slice(0, third)),
    medianOf(figures.slice(third, 2 * third)),
    medianOf(figures.slice(-third)),
  ] as const;
  return { first, before, after, isLevel: after <= before * (1 + MOST_GROWTH) };
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((left, right) => left - right)[Math.floor(values.length / 2)]!;
}
