/** Thousands of object changes at a real API server. It compares memory, so CI runs it alone. */
import { isMissing, program } from "../support/requirement.ts";
import { buildApiserver } from "./build_apiserver.ts";
import { defineSoakTests } from "./soak_tests.ts";

if (!isMissing("The soak test at the real API machinery", [program("go")])) {
  const built = await buildApiserver();
  if (built === undefined) throw new Error("Cannot build tests/apiserver: 'go version' fails");
  defineSoakTests(built);
}
