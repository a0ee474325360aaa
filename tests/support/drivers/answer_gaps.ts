/**
 * Measures for how long each URL has no answer while kube-relay takes the place of another program.
 * Prints `asking` once the other program has answered at all of them, then one line of JSON for each.
 * A program of its own, for a namespace.
 *
 * @module
 */
import { SERVER_NAME } from "../../../lib/os/http_connection.ts";

/** The line that is printed for each URL. */
export interface AnswerGap {
  readonly url: string;
  /**
   * From the last answer of the other program to the first question that kube-relay answered. How
   * long a busy machine takes for that answer is no gap.
   */
  readonly gapMs: number;
  /** The status of that first answer. */
  readonly status: number;
}

const PERIOD_MS = 10;

async function ask(url: string): Promise<{ readonly status: number; readonly ours: boolean }> {
  const response = await fetch(url, { headers: { connection: "close" } });
  await response.body?.cancel();
  return { status: response.status, ours: response.headers.get("server") === SERVER_NAME };
}

async function measureGap(url: string, onOther: () => void): Promise<AnswerGap> {
  let other = performance.now();
  while (true) {
    const askedAt = performance.now();
    const answer = await ask(url).catch(() => undefined);
    if (answer?.ours) return { url, gapMs: Math.round(askedAt - other), status: answer.status };
    if (answer) {
      other = performance.now();
      onOther();
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
}

async function print(line: string): Promise<void> {
  await Deno.stdout.write(new TextEncoder().encode(`${line}\n`));
}

if (import.meta.main) {
  const urls = Deno.args;
  const answered = urls.map(() => Promise.withResolvers<void>());
  const gaps = urls.map((url, index) => measureGap(url, answered[index]!.resolve));
  await Promise.all(answered.map(({ promise }) => promise));
  await print("asking");
  for (const gap of await Promise.all(gaps)) await print(JSON.stringify(gap));
}
