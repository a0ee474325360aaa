/**
 * Notices chains that another program removed, or removed and made again.
 *
 * @module
 */
import type { NftRunner } from "./nft_runner.ts";

/** The handles of chains as they were seen since they were written. */
export class ChainHandles {
  readonly #handles = new Map<string, string>();

  /** Forgets chains that were written or deleted. */
  forget(names: Iterable<string>): void {
    for (const name of names) this.#handles.delete(name);
  }

  forgetAll(): void {
    this.#handles.clear();
  }

  /** Returns the `chains` that are missing or were recreated. Lists no rules and no elements. */
  async missing(
    runner: Pick<NftRunner, "chains">,
    chains: ReadonlySet<string>,
  ): Promise<readonly string[]> {
    let lost = chains;
    // One listing alone raises no alarm, see nft_runner.ts.
    for (let listings = 0; listings < 2; listings++) {
      const present = await runner.chains();
      lost = new Set([...lost].filter((name) => {
        const handle = present.get(name);
        return handle === undefined || handle !== (this.#handles.get(name) ?? handle);
      }));
      if (lost.size > 0) continue;
      for (const [name, handle] of present) this.#handles.set(name, handle);
      return [];
    }
    return [...lost];
  }
}
