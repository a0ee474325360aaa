/**
 * The client of the API server against the real API machinery. A first run builds it: minutes.
 *
 * @module
 */
import { startApiMachinery } from "../support/api_machinery.ts";
import { isMissing, program } from "../support/requirement.ts";
import { buildApiserver } from "./build_apiserver.ts";
import { defineCredentialTests } from "./credential_tests.ts";
import { defineOldServerTests } from "./old_server_tests.ts";
import { defineOutageTests } from "./outage_tests.ts";
import { runConformanceSuite } from "./suite.ts";
import { runWireSuite } from "./wire_suite.ts";

if (!isMissing("The conformance suite on the real API machinery", [program("go")])) {
  const built = await buildApiserver();
  if (built === undefined) throw new Error("Cannot build tests/apiserver: 'go version' fails");
  const start = () => startApiMachinery({ program: built });
  runWireSuite("k8s.io/apiserver", start);
  runConformanceSuite("k8s.io/apiserver", start);
  defineCredentialTests(built);
  await defineOldServerTests(built);
  defineOutageTests(built);
}
