import { assertEquals, assertThrows } from "@std/assert";
import { testProxyPlan, testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { ConfigurationError } from "../../config/load.ts";
import { checkService, servicePortsOf } from "./find_service_ports.ts";

const PLAN = testProxyPlan([
  testServicePlan({ name: "web", portName: "http" }),
  testServicePlan({ name: "web", portName: "https", port: 443 }),
  testServicePlan({ name: "web-2" }),
]);

Deno.test("servicePortsOf() finds all ports of a Service, and none of one with the same prefix", () => {
  assertEquals([...servicePortsOf(PLAN, "ns/web")], ["ns/web:http/TCP", "ns/web:https/TCP"]);
  assertEquals([...servicePortsOf(PLAN, "ns/we")], []);
});

function refusal(service: string, all: readonly string[]): Error {
  return assertThrows(() => checkService(service, { plans: [PLAN], all: new Set(all) }), Error);
}

Deno.test("checkService() offers the same name elsewhere, then the nearest ones, three at most", () => {
  const all = ["a/shop", "ns/shot", "ns/ship", "ns/shap", "ns/elsewhere"];
  assertEquals(
    refusal("ns/shop", all).message,
    "Cannot find Service 'ns/shop': none of 5 has this name; did you mean 'a/shop', 'ns/shap', " +
      "'ns/ship'?",
  );
  assertEquals(
    refusal("ns/nothing-like-it", all).message,
    "Cannot find Service 'ns/nothing-like-it': none of 5 has this name",
  );
});

Deno.test("checkService() reports a name without namespace as a wrong command line", () => {
  for (const service of ["web", "/web", "ns/", "ns/web/http", ""]) {
    const error = refusal(service, ["ns/web"]);
    assertEquals([error instanceof ConfigurationError], [true], service);
  }
  assertEquals(
    (refusal("web", ["ns/web"]) as ConfigurationError).problems,
    ["Cannot use 'web' for --service: expected NAMESPACE/NAME; did you mean 'ns/web'?"],
  );
});
