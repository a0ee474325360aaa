import { refusedLine } from "../tool_batch.ts";
import { destroyLine } from "./ipset_text.ts";
import type { RemovalRun } from "../foreign/removal_run.ts";

/**
 * Destroys sets by one process. A set in use is a failure of the run, and the other sets are still
 * destroyed. `proof` is a set by which a later run recognizes the owner of the remaining sets, and
 * stays with them.
 */
export async function destroySets(
  run: RemovalRun,
  sets: readonly string[],
  { proof }: { readonly proof?: string } = {},
): Promise<void> {
  let names = [...sets];
  while (names.length > 0) {
    const rest = names;
    const reason = await run.try({
      command: ["ipset", "restore"],
      input: () => rest.map((name) => `${destroyLine(name)}\n`),
      removes: rest.map((name) => `ipset ${name}`),
    });
    if (reason === undefined) return;
    // ipset stops at the line that failed. The lines before it took effect; those after it are retried.
    const line = refusedLine(reason) ?? 1;
    for (const name of rest.slice(0, line - 1)) run.remove(`ipset ${name}`);
    names = rest.slice(line);
    // Another program destroyed it in the meantime.
    if (/does not exist/.test(reason)) continue;
    run.fail(`ipset ${rest[line - 1]}: ${reason}`);
    names = names.filter((name) => name !== proof);
  }
}
