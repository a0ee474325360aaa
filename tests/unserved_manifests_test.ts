/** Objects in a folder of manifests that a running kube-relay does not serve. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { testService } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { eventually } from "./support/eventually.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { onlyFrom, PolicyRelay } from "./support/stages/policy_relay.ts";

const MANIFESTS = {
  "policy.json": manifestText([onlyFrom("friend")]),
  "service.json": manifestText(rawObjects("Service", testService("web"))),
};
const CURE = "NetworkPolicies are enforced with --network-policy only";

Deno.test("a NetworkPolicy without --network-policy is one warning and a line of the status", async () => {
  await using relay = await LoopbackRelay.start({ manifests: MANIFESTS });
  const { sources } = await relay.settled();
  const lines = relay.log.split("\n").filter((line) => line.includes("kinds that are not served"));
  assertEquals(lines.length, 1, relay.log);
  for (const part of ["WARN", "NetworkPolicy x1", `${relay.folder}/manifests/policy.json`, CURE]) {
    assertStringIncludes(lines[0]!, part);
  }
  assertEquals(sources.map(({ state }) => state), [
    `0 objects; not served: NetworkPolicy x1 (${CURE})`,
    "1 object",
  ]);
});

Deno.test("a NetworkPolicy with --network-policy is no warning", async () => {
  // With data planes that are fakes: a real one would write rules on this machine.
  await using relay = await PolicyRelay.start({
    manifests: { "policy.json": [onlyFrom("friend")] },
  });
  await relay.synced();
  const { sources } = await relay.status();
  assertEquals(relay.lines.filter((line) => line.includes("kinds that are not served")), []);
  assertEquals(sources.map(({ state }) => state), ["1 object"]);
});

Deno.test("a start without any manifest is a warning, and the first one is served", async () => {
  await using relay = await LoopbackRelay.start({ manifests: {} });
  await relay.settled();
  assertStringIncludes(
    relay.log,
    `WARN  There is no manifest yet; Services are served once there is one manifests=${relay.folder}/manifests`,
  );
  await Deno.writeTextFile(`${relay.folder}/manifests/a.json`, MANIFESTS["service.json"]);
  await eventually("it is read", async () => (await relay.status()).sources.length === 1);
});
