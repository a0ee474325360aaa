/**
 * The table of the benchmark, without a kernel.
 *
 * @module
 */
import type { NftTransaction } from "../../../backends/netfilter/nft/nft_transaction.ts";
import { NftablesLayout } from "../../../backends/nftables/layout.ts";
import { NftablesTarget } from "../../../backends/nftables/target.ts";
import { Reconciler } from "../../../lib/engine/reconciler.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { BENCH_SHARED, benchEndpoint, benchServicePlanTo } from "../bench_services.ts";
import { BENCH_OPTIONS } from "./bench_options.ts";

/** The number and kind of Services. */
export interface TableSize {
  readonly services: number;
  /** Of each Service. */
  readonly endpoints: number;
}

/** E.g. `5000 x 50`. */
export function sizeName({ services, endpoints }: TableSize): string {
  return `${services} x ${endpoints}`;
}

/** Endpoints have numbers below this. */
const NUMBERS = 128;

/** So many Services, which can be changed. */
export class TableModel {
  readonly size: TableSize;
  readonly #layout = new NftablesLayout(BENCH_SHARED, BENCH_OPTIONS);
  readonly #engine: { sync(): Promise<void> };
  #written: NftTransaction | undefined;
  /** Numbers of the endpoints of Services that are not as they were at first. */
  readonly #endpoints = new Map<number, readonly number[]>();
  #added = 0;

  constructor(size: TableSize) {
    this.size = size;
    const runner = {
      chains: () => Promise.resolve(new Map()),
      readWithCode: () => Promise.resolve(undefined),
      ruleCode: () => Promise.resolve(new Map()),
      write: (transaction: NftTransaction) => {
        this.#written = transaction;
        return Promise.resolve();
      },
    };
    const target = new NftablesTarget({ clock: systemClock, runner: runner as never }, "IPv4");
    target.layout = this.#layout;
    this.#engine = new Reconciler({ clock: systemClock }, target);
    for (let index = 0; index < size.services; index++) this.#put(index);
  }

  /** Gives one endpoint of the index-th Service another address. */
  change(index: number): void {
    const [first = 0, ...rest] = this.#numbers(index);
    this.#set(index, [unusedAfter(first, rest), ...rest]);
  }

  /** Gives the index-th Service one endpoint more. */
  grow(index: number): void {
    const numbers = this.#numbers(index);
    this.#set(index, [...numbers, unusedAfter(numbers.at(-1) ?? 0, numbers)]);
  }

  /** Takes the last endpoint of the index-th Service. */
  shrink(index: number): void {
    this.#set(index, this.#numbers(index).slice(0, -1));
  }

  /** Adds one more Service. */
  add(): void {
    this.#put(this.size.services + this.#added++);
  }

  /** Deletes the Service that was added last. */
  remove(): void {
    const index = this.size.services + --this.#added;
    this.#layout.delete(benchServicePlanTo(index, []).key);
  }

  /** Returns what changes the table of the kernel, which is taken to accept it. */
  async transaction(): Promise<NftTransaction> {
    this.#written = undefined;
    await this.#engine.sync();
    if (this.#written === undefined) throw new Error("Nothing was to be written");
    return this.#written;
  }

  #numbers(index: number): readonly number[] {
    return this.#endpoints.get(index) ??
      Array.from({ length: this.size.endpoints }, (_, number) => number);
  }

  #set(index: number, numbers: readonly number[]): void {
    this.#endpoints.set(index, numbers);
    this.#put(index);
  }

  #put(index: number): void {
    const endpoints = this.#numbers(index).map((number) => benchEndpoint(index, number));
    this.#layout.set(benchServicePlanTo(index, endpoints));
  }
}

function unusedAfter(number: number, used: readonly number[]): number {
  let next = number;
  do next = (next + 1) % NUMBERS; while (used.includes(next));
  return next;
}
