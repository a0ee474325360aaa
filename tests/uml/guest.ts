/**
 * The requirements of the tests in this folder besides namespaces: the guest that `deno task
 * test:uml` boots.
 */
import type { Requirement } from "../support/requirement.ts";

/** The need of the guest, for `isMissing()`. */
export const GUEST: Requirement = [
  "the guest that 'deno task test:uml' boots",
  Deno.env.get("KUBE_RELAY_GUEST") === "1",
];
