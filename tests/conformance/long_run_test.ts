/**
 * Minutes beside a real API server that fails again and again. It waits nearly all the time, so CI runs
 * it beside the other tests.
 *
 * @module
 */
import { isMissing, program } from "../support/requirement.ts";
import { buildApiserver } from "./build_apiserver.ts";
import { defineRealLongRun } from "./long_run_tests.ts";

if (!isMissing("The long run beside the real API machinery", [program("go")])) {
  const built = await buildApiserver();
  if (built === undefined) throw new Error("Cannot build tests/apiserver: 'go version' fails");
  defineRealLongRun(built);
}
