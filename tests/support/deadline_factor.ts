/**
 * Lengthens deadlines on slow machines: by 10 in the guest of `deno task test:uml`.
 *
 * @module
 */

/** The factor for every deadline of a test. A deadline only ends a wait that would never end. */
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
