import { assertEquals, assertRejects } from "@std/assert";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { CleanupReport } from "../../engine/data_plane.ts";
import type { PolicyRemovalOptions } from "../../proxy/host_checks.ts";
import { takeOverPolicies } from "./policy_takeover.ts";

function takeOver(
  remove: (options: PolicyRemovalOptions) => Promise<CleanupReport>,
  controller = new AbortController(),
) {
  const logger = new MemoryLogger();
  const dependencies = { hostChecks: { removeKubeRouterPolicies: remove }, logger };
  return { logger, done: takeOverPolicies(dependencies, controller.signal) };
}

Deno.test("takeOverPolicies() removes the rules, and logs removals and failures", async () => {
  const { logger, done } = takeOver(({ dryRun }) =>
    Promise.resolve({ removed: [`dry: ${dryRun}`], failed: ["ipset X: in use"], kept: ["chain Y"] })
  );
  await done;
  assertEquals(logger.lines.map(({ level, fields }) => [level, fields.what ?? fields.things]), [
    ["verbose", "dry: false"],
    ["info", "chain Y"],
    ["warn", "ipset X: in use"],
    ["info", 1],
  ]);
});

Deno.test("takeOverPolicies() logs a failure and continues, but ends with the signal", async () => {
  const failing = takeOver(() => Promise.reject(new Error("broken")));
  await failing.done;
  assertEquals(failing.logger.lines.map(({ level }) => level), ["error"]);
  const controller = new AbortController();
  controller.abort();
  const { done } = takeOver(() => Promise.reject(new Error("aborted")), controller);
  await assertRejects(() => done, DOMException);
});
