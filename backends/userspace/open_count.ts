/** A count that can be waited for to reach zero. */
export class OpenCount {
  #count = 0;
  #waiting: (() => void)[] = [];

  get value(): number {
    return this.#count;
  }

  add(): void {
    this.#count++;
  }

  remove(): void {
    if (--this.#count === 0) { for (const resolve of this.#waiting.splice(0)) resolve(); }
  }

  /** Resolves when the count is zero; at once if it is. */
  async zero(): Promise<void> {
    while (this.#count > 0) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}
