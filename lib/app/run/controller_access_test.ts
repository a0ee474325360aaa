import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { ApiError } from "../../kube/api_error.ts";
import { TransportError } from "../../kube/transport.ts";
import { POLICY_ACCESS, policyKubeconfigOf } from "../policy/policy_access.ts";
import { ControllerAccess, findMissingAccess } from "./controller_access.ts";
import { defaultConfiguration } from "../../config/configuration.ts";

/** An API server that answers reviews with these refusals, or fails. */
class Reviews {
  refused: readonly string[] = [];
  failure: Error | undefined;
  asked = 0;

  create(_path: string, object: unknown): Promise<unknown> {
    this.asked++;
    if (this.failure) return Promise.reject(this.failure);
    const { spec: { resourceAttributes: { verb, resource } } } = object as {
      spec: { resourceAttributes: { verb: string; resource: string } };
    };
    return Promise.resolve({ status: { allowed: !this.refused.includes(`${verb} ${resource}`) } });
  }
}

/** Starts to wait for access. */
function startWaiting(reviews: Reviews) {
  const [clock, logger, controller] = [new FakeClock(), new MemoryLogger(), new AbortController()];
  const access = new ControllerAccess({ clock, logger, random: () => 0 }, POLICY_ACCESS);
  const granted = access.granted(reviews, controller.signal);
  granted.catch(() => {});
  const errors = () => logger.lines.filter(({ level }) => level === "error");
  return { clock, logger, controller, access, granted, errors };
}

Deno.test("findMissingAccess() names every right that is missing, and the role that grants them", async () => {
  const reviews = new Reviews();
  const { signal } = new AbortController();
  assertEquals(await findMissingAccess(reviews, POLICY_ACCESS, signal), undefined);
  assertEquals(reviews.asked, 6);
  reviews.refused = ["list pods", "watch pods", "list namespaces", "watch namespaces"];
  const { missing, clusterRole, cure } = (await findMissingAccess(reviews, POLICY_ACCESS, signal))!;
  assertEquals(missing, reviews.refused);
  assertStringIncludes(
    clusterRole,
    "rules: [{apiGroups: [''], resources: [pods, namespaces], verbs: [list, watch]}]",
  );
  assertStringIncludes(cure, "--policy-kubeconfig");
});

Deno.test("ControllerAccess reports that nothing is enforced, asks again, and continues once it may", async () => {
  const reviews = new Reviews();
  reviews.refused = ["watch pods"];
  const { clock, access, granted, errors, logger } = startWaiting(reviews);
  await clock.advance(0);
  assertStringIncludes(access.status.state, "no NetworkPolicy is enforced");
  assertEquals(access.status.problems[0], "no right to watch pods");
  assertStringIncludes(errors()[0]!.message, "NetworkPolicies are NOT enforced");
  assertStringIncludes(String(errors()[0]!.fields.clusterRole), "verbs: [watch]");
  await clock.advance(5_000);
  await clock.advance(10_000);
  assertEquals([reviews.asked, errors().length], [18, 1], "the same is logged once");
  reviews.refused = [];
  await clock.advance(20_000);
  await granted;
  assertEquals([access.status.state, access.status.problems], ["granted", []]);
  assertEquals(logger.lines.at(-1)?.level, "info");
});

Deno.test("ControllerAccess asks again while the API server is out of reach or overloaded", async () => {
  const reviews = new Reviews();
  reviews.failure = new TransportError("connect", "no route");
  const { clock, access, granted, errors } = startWaiting(reviews);
  await clock.advance(0);
  assertStringIncludes(access.status.state, "not answered: no route");
  reviews.failure = new ApiError("busy", { status: 429 });
  await clock.advance(5_000);
  reviews.failure = undefined;
  await clock.advance(10_000);
  await granted;
  assertEquals(errors(), []);
});

Deno.test("ControllerAccess leaves it to the watches if the server has no access reviews", async () => {
  const reviews = new Reviews();
  reviews.failure = new ApiError("not found", { status: 404 });
  const { access, granted } = startWaiting(reviews);
  await granted;
  assertEquals([access.status.state, access.status.problems], ["unknown", []]);
});

Deno.test("ControllerAccess ends with the signal", async () => {
  const reviews = new Reviews();
  reviews.refused = ["list pods"];
  const { clock, granted, controller } = startWaiting(reviews);
  await clock.advance(0);
  controller.abort();
  await assertRejects(() => granted, DOMException);
});

Deno.test("policyKubeconfigOf() prefers the kubeconfig for policies", () => {
  const configuration = defaultConfiguration();
  const clientConnection = { ...configuration.clientConnection, kubeconfig: "/k" };
  assertEquals(policyKubeconfigOf({ ...configuration, clientConnection }), "/k");
  const networkPolicy = { ...configuration.networkPolicy, kubeconfig: "/p" };
  assertEquals(policyKubeconfigOf({ clientConnection, networkPolicy }), "/p");
});
