/**
 * How much longer things take than on a machine: 10 in the guest of `deno task test:uml`.
 *
 * @module
 */

/** What every deadline of a test is multiplied by. Deadlines only end what would never end. */
export const DEADLINE_FACTOR = factor();

function factor(): number {
  // Tests of pure files use what uses this, and have no permission to ask.
  if (
    Deno.permissions.querySync({ name: "env", variable: "DEADLINE_FACTOR" }).state !== "granted"
  ) {
    return 1;
  }
  return Number(Deno.env.get("DEADLINE_FACTOR") ?? 1);
}
