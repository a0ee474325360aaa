import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parsePort } from "../../lib/net/port.ts";
import { type ServicePortKey, servicePortText } from "../../lib/proxy/service_port_name.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  testEndpoint,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { renderIptables, renderText } from "./render.ts";
import { ALL_FEATURES } from "./render_options.ts";

const OPTIONS = defaultRenderOptions("IPv4");

function plan(options: TestServicePlan) {
  return testServicePlan({
    to: ["10.1.0.1:80"],
    reachable: [testEndpoint("10.1.0.1:80", { isLocal: true })],
    ...options,
  });
}

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

Deno.test("renderText() of some ServicePorts has their rules in the order of all rules, as complete input", () => {
  const plans = fc.array(randomServicePlan, { minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(plans, fc.integer({ min: 1, max: 7 }), (made, every) => {
      const services = [...new Map(made.map((each) => [each.key, each])).values()];
      const all = testProxyPlan(services);
      const chosen = services.filter((_, index) => index % every === 0);
      const keys = new Set(chosen.map(({ key }) => key));
      const text = [...renderText(all, OPTIONS, keys)].join("");
      new FakeIptables().restore(text);
      const left = new Set(text.split("\n"));
      const { lines } = renderIptables(all, OPTIONS);
      const own = chosen.map(({ name }) => `"${servicePortText(name)} `);
      for (const line of lines) {
        const isThere = left.delete(line);
        if (own.some((comment) => line.includes(comment))) assert(isThere, line);
      }
      assertEquals([...left].filter((line) => line !== "" && !line.startsWith("#")), []);
    }),
    { numRuns: 60 },
  );
});

const SERVICES = Array.from({ length: 100 }, (_, number) =>
  testServicePlan({
    name: `service-${number}`,
    clusterIp: `10.96.0.${number}`,
    masqueradeInternal: "all",
    ...(number === 7 && { nodePort: 30_007 }),
    to: number === 9 ? [] : [`10.1.0.${number}:80`, `10.2.0.${number}:80`],
  }));

function excerptOf(...numbers: readonly number[]): string {
  const keys = new Set(numbers.map((number) => SERVICES[number]!.key));
  return [...renderText(testProxyPlan(SERVICES), OPTIONS, keys)].join("");
}

Deno.test("renderText() of a ServicePort has its rules and the way to them", () => {
  const lines = excerptOf(3).split("\n");
  assertEquals(lines.filter((line) => line.includes("DNAT")).length, 2);
  assert(lines.every((line) => !line.includes("-j DNAT") || line.includes("10.96.0.3 ")));
  assert(lines.some((line) => line.startsWith("-I OUTPUT ") && line.endsWith("-j KUBE-SERVICES")));
  assert(lines.some((line) => /^-A KUBE-SERVICES -d 10.96.0.\d+.* -[jg] KUBE-VIP-/.test(line)));
  assert(lines.some((line) => line.startsWith("-A KUBE-MARK-MASQ -j MARK ")));
  assertEquals(excerptOf(), "");
});

Deno.test("renderText() of a ServicePort has its node port, and the table of a refusal", () => {
  const served = excerptOf(7);
  assert(/^-A KUBE-SERVICES .* -j KUBE-NODEPORTS$/m.test(served));
  assert(/^-A KUBE-NODEPORTS .* --dport 30007 /m.test(served));
  assert(!served.includes("*filter"));
  const refused = excerptOf(9);
  assert(!refused.includes("*nat"));
  assert(refused.includes("has no endpoints"));
});

Deno.test("renderText() of a ServicePort ignores chain names in comments", () => {
  const [service] = SERVICES;
  const named = { ...service!, name: { ...service!.name, port: '" -j KUBE-POSTROUTING "' } };
  const text = [...renderText(testProxyPlan([named]), OPTIONS, new Set([named.key]))].join("");
  assert(text.includes("DNAT"));
  assert(!text.includes(":KUBE-POSTROUTING"));
});

Deno.test("renderText() counts connections to node ports on loopback if it can", () => {
  const options = { ...OPTIONS, features: { ...ALL_FEATURES, nfacct: true } };
  const text = [...renderText(testProxyPlan([plan({ name: "a", nodePort: 30080 })]), options)];
  assert(
    text.join("").includes(
      "-d 127.0.0.0/8 -m tcp -p tcp --dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts",
    ),
  );
});
