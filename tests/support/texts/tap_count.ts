/**
 * Counts the tests of a TAP stream (version 14, as `deno test --reporter=tap` writes it).
 *
 * @module
 */

/** Takes a stream in pieces as they come. */
export class TapCount {
  readonly #decoder = new TextDecoder();
  #rest = "";
  passed = 0;
  failed = 0;
  ignored = 0;

  /** Steps of a test are indented, and belong to its own line. */
  take(bytes: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (/^(not )?ok \d+ .*# SKIP/i.test(line)) this.ignored++;
      else if (/^ok \d+/.test(line)) this.passed++;
      else if (/^not ok \d+/.test(line)) this.failed++;
    }
  }
}
