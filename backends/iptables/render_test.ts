import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  testEndpoint,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { renderIptables, renderText, sharedRules } from "./render.ts";
import { ALL_FEATURES } from "./render_options.ts";
import { serviceExcerpt } from "./service_excerpt.ts";

const OPTIONS = defaultRenderOptions("IPv4");

function plan(options: TestServicePlan) {
  return testServicePlan({
    to: ["10.1.0.1:80"],
    reachable: [testEndpoint("10.1.0.1:80", { isLocal: true })],
    ...options,
  });
}

Deno.test("renderText() prints the input of a sync on a machine without rules", () => {
  const services = testProxyPlan([plan({ name: "a" })]);
  const { batch } = renderIptables(services, OPTIONS);
  assertEquals([...renderText(services, OPTIONS)].join(""), [...batch.text()].join(""));
});

Deno.test("renderText() shows a rule that two Services share with either of them", () => {
  const [a, b] = [plan({ name: "a" }), plan({ name: "b", clusterIp: "127.96.0.2" })];
  const services = testProxyPlan([a, b]);
  for (const { key } of [a, b]) {
    const text = [...renderText(services, OPTIONS, new Set([key]))].join("");
    assert(/^-A KUBE-HAIRPIN .*-s 10.1.0.1 /m.test(text), text);
  }
  const both = [...renderText(services, OPTIONS)].join("");
  assertEquals(both.match(/^-A KUBE-HAIRPIN/gm)?.length, 1);
});

Deno.test("renderText() of one ServicePort has the rule that masquerades its range", () => {
  const masqueradedRanges = {
    services: [parseCidr("127.96.0.0/16")],
    pods: parseCidr("10.0.0.0/8"),
  };
  const a = plan({ name: "a", to: ["10.1.0.1:80"], masqueradeInternal: "off-cluster" });
  const text = [
    ...renderText(testProxyPlan([a]), { ...OPTIONS, masqueradedRanges }, new Set([a.key])),
  ].join("");
  assert(/^-A KUBE-POSTROUTING ! -s 10\.0\.0\.0\/8 .*--ctorigdst 127\.96\.0\.0\/16 /m.test(text));
  assert(!text.includes("--mark 0x00004000/0x00004000 -j RETURN"));
});

Deno.test("renderText() puts into comments what rules cannot express", () => {
  const options = { ...OPTIONS, features: { ...ALL_FEATURES, statistic: false } };
  const a = plan({ name: "a", to: ["10.1.0.1:80", "10.1.0.2:80"], port: parsePort(80) });
  const services = testProxyPlan([a]);
  const comments = (keys?: ReadonlySet<ServicePortKey>) =>
    [...renderText(services, options, keys)].join("").split("\n")
      .filter((line) => line.startsWith("#"));
  assertEquals(comments(), comments(new Set([a.key])));
  assertEquals(comments(new Set()), []);
  assert(/^# Left out: ns\/a\/TCP: Cannot express .*'statistic'/.test(comments()[0] ?? ""));
});

Deno.test("renderText() of some ServicePorts is the excerpt of all rules that are for them", () => {
  const plans = fc.array(randomServicePlan, { minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(plans, fc.integer({ min: 1, max: 7 }), (made, every) => {
      const services = [...new Map(made.map((each) => [each.key, each])).values()];
      const all = testProxyPlan(services);
      const keys = new Set(
        services.filter((_, index) => index % every === 0).map(({ key }) => key),
      );
      const shared = sharedRules(all, OPTIONS, keys);
      const expected = [...serviceExcerpt(renderIptables(all, OPTIONS).batch, { keys, shared })];
      assertEquals([...renderText(all, OPTIONS, keys)].join(""), expected.join(""));
    }),
    { numRuns: 60 },
  );
});
