/**
 * The client of the API server against the real API machinery. A first run builds it: minutes.
 * With `KUBE_APISERVER_URL` (and `KUBECONFIG` for the credentials) also against that cluster, in a
 * namespace of its own.
 */
import { loadKubeAuth } from "../../lib/kube/kubeconfig.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { isMissing, program } from "../support/requirement.ts";
import { defineAccessTests } from "./access_tests.ts";
import { buildApiserver } from "./build_apiserver.ts";
import { defineClusterTests } from "./cluster_tests.ts";
import { defineCredentialTests } from "./credential_tests.ts";
import { defineManifestTests } from "./manifest_tests.ts";
import { defineOldServerTests } from "./old_server_tests.ts";
import { defineOutageTests } from "./outage_tests.ts";
import { defineEncodingTests } from "./encoding_tests.ts";
import { defineEventTests } from "./event_tests.ts";
import { defineClusterPolicyTests, definePolicyTests } from "./policy_tests.ts";
import { defineRoutingObjectTests } from "./routing_object_tests.ts";
import { runConformanceSuite } from "./suite.ts";
import { runWireSuite } from "./wire_suite.ts";

if (!isMissing("The conformance suite on the real API machinery", [program("go")])) {
  const built = await buildApiserver();
  if (built === undefined) throw new Error("Cannot build tests/apiserver: 'go version' fails");
  const start = () => startApiMachinery({ program: built });
  runWireSuite("k8s.io/apiserver", start);
  defineEncodingTests(built);
  runConformanceSuite("k8s.io/apiserver", start);
  runConformanceSuite("k8s.io/apiserver, JSON", start, { protobuf: false });
  defineEventTests("k8s.io/apiserver", start);
  definePolicyTests("k8s.io/apiserver", start);
  defineClusterPolicyTests("k8s.io/apiserver", start);
  defineAccessTests(
    "k8s.io/apiserver",
    () => startApiMachinery({ program: built, forbiddenResources: ["nodes"] }),
  );
  defineManifestTests(built);
  defineRoutingObjectTests(built);
  defineCredentialTests(built);
  await defineOldServerTests(built);
  defineOutageTests(built);
}

const master = Deno.env.get("KUBE_APISERVER_URL");
if (master) {
  defineClusterTests(master, async () => ({
    auth: await loadKubeAuth({ clock: systemClock, logger: new MemoryLogger() }, {
      master,
      env: (name) => Deno.env.get(name),
    }),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  }));
}
