/**
 * Runs for minutes with a real API server that fails again and again. It waits most of the time, so
 * CI runs it in parallel with the other tests.
 *
 * @module
 */
import { isMissing, program } from "../support/requirement.ts";
import { buildApiserver } from "./build_apiserver.ts";
import { defineRealLongRun } from "./long_run_tests.ts";

if (!isMissing("The long run with the real API machinery", [program("go")])) {
  const built = await buildApiserver();
  if (built === undefined) throw new Error("Cannot build tests/apiserver: 'go version' fails");
  defineRealLongRun(built);
}
