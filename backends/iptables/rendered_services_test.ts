import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { renderService } from "./render_service.ts";
import { RenderedServices } from "./rendered_services.ts";

const CONTEXT = {
  localTraffic: { kind: "none" },
  options: defaultRenderOptions("IPv4"),
} as const;
const PLAN = testServicePlan({
  externalIps: ["192.0.2.1"],
  to: [1, 2, 3, 4, 5].map((number) => `10.0.0.${number}:80`),
});

Deno.test("RenderedServices have the text of the rules of renderService()", () => {
  const { entries, chains } = new RenderedServices().textOf(PLAN, CONTEXT);
  const rendered = renderService(PLAN, CONTEXT);
  assert(rendered.chains.length > 0 && rendered.entries.length > 1);
  assertEquals(
    entries,
    rendered.entries.map((entry) => ({ ...entry, rules: entry.rules.map(ruleText) })),
  );
  assertEquals(
    chains,
    rendered.chains.map((chain) => ({ ...chain, rules: chain.rules.map(ruleText) })),
  );
});

Deno.test("RenderedServices render a plan once, and again after a change or when it was forgotten", () => {
  const services = new RenderedServices();
  const first = services.textOf(PLAN, CONTEXT);
  assertStrictEquals(services.textOf(PLAN, CONTEXT), first);
  const other = services.textOf({ ...PLAN, externalIps: [] }, CONTEXT);
  assert(other.entries.length < first.entries.length);
  const again = services.textOf(PLAN, CONTEXT);
  services.forget(PLAN.key);
  const afterForget = services.textOf(PLAN, CONTEXT);
  assert(afterForget !== again);
  services.clear();
  assert(services.textOf(PLAN, CONTEXT) !== afterForget);
});
