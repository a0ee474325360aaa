/** The conformance suite on the fake API server of `tests/support`. */
import { FakeApiServer } from "../support/fakes/fake_api_server.ts";
import type { ConformanceServer } from "./server.ts";
import { defineAccessTests } from "./access_tests.ts";
import { defineEventTests } from "./event_tests.ts";
import { definePolicyTests } from "./policy_tests.ts";
import { runConformanceSuite } from "./suite.ts";
import { runWireSuite } from "./wire_suite.ts";

runWireSuite("fake", () => startFake());
runConformanceSuite("fake", () => startFake());
defineEventTests("fake", () => startFake());
definePolicyTests("fake", () => startFake());
defineAccessTests("fake", () => startFake((fake) => fake.setMissing("/api/v1/nodes", 403)));

async function startFake(
  prepare: (fake: FakeApiServer) => void = () => {},
): Promise<ConformanceServer> {
  const fake = await FakeApiServer.start();
  prepare(fake);
  let token = fake.rotateToken();
  let certificate = await fake.rotateClientCertificate();
  return {
    name: "fake",
    capabilities: { streamingLists: true, clusterIpSelector: true },
    url: fake.url,
    ca: fake.ca,
    token: () => token,
    rotateToken: () => Promise.resolve(token = fake.rotateToken()),
    clientCertificate: () => certificate,
    rotateClientCertificate: async () => certificate = await fake.rotateClientCertificate(),
    create: (object) => Promise.resolve(fake.store.create(object)),
    update: (object) => Promise.resolve(fake.store.update(object)),
    delete: (object) => Promise.resolve(void fake.store.delete(object)),
    compact: () => Promise.resolve(fake.compact()),
    killApi: () => fake.kill(),
    restartApi: () => fake.restart(),
    [Symbol.asyncDispose]: () => fake[Symbol.asyncDispose](),
  };
}
