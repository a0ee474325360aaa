import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { renderIptables } from "./render.ts";
import { serviceExcerpt } from "./service_excerpt.ts";

const SERVICES = Array.from({ length: 100 }, (_, number) =>
  testServicePlan({
    name: `service-${number}`,
    clusterIp: `10.96.0.${number}`,
    masqueradeInternal: "all",
    ...(number === 7 && { nodePort: 30_007 }),
    to: number === 9 ? [] : [`10.1.0.${number}:80`, `10.2.0.${number}:80`],
  }));
const { batch } = renderIptables(testProxyPlan(SERVICES), defaultRenderOptions("IPv4"));

function excerptOf(...numbers: readonly number[]): string {
  const keys = new Set(numbers.map((number) => SERVICES[number]!.key));
  return [...serviceExcerpt(batch, { keys })].join("");
}

Deno.test("serviceExcerpt() has the rules of a ServicePort and the way to them", () => {
  const lines = excerptOf(3).split("\n");
  assertEquals(lines.filter((line) => line.includes("DNAT")).length, 2);
  assert(lines.every((line) => !line.includes("-j DNAT") || line.includes("10.96.0.3 ")));
  assert(lines.some((line) => line.startsWith("-I OUTPUT ") && line.endsWith("-j KUBE-SERVICES")));
  assert(lines.some((line) => /^-A KUBE-SERVICES -d 10.96.0.\d+.* -[jg] KUBE-VIP-/.test(line)));
  assert(lines.some((line) => line.startsWith("-A KUBE-MARK-MASQ -j MARK ")));
});

Deno.test("serviceExcerpt() has the node port of a ServicePort and the table of a refusal", () => {
  const served = excerptOf(7);
  assert(/^-A KUBE-SERVICES .* -j KUBE-NODEPORTS$/m.test(served));
  assert(/^-A KUBE-NODEPORTS .* --dport 30007 /m.test(served));
  assert(!served.includes("*filter"));
  const refused = excerptOf(9);
  assert(!refused.includes("*nat"));
  assert(refused.includes("has no endpoints"));
});

Deno.test("serviceExcerpt() is complete input", () => {
  for (const numbers of [[0], [7], [9], [1, 50, 99]]) {
    new FakeIptables().restore(excerptOf(...numbers));
  }
  assertEquals(excerptOf(), "");
});

Deno.test("serviceExcerpt() ignores chain names in comments", () => {
  const [service] = SERVICES;
  const options = defaultRenderOptions("IPv4");
  const plan = {
    ...service!,
    name: { ...service!.name, port: '" -j KUBE-POSTROUTING "' },
  };
  const { batch } = renderIptables(testProxyPlan([plan]), options);
  const text = [...serviceExcerpt(batch, { keys: new Set([plan.key]) })].join("");
  assert(text.includes("DNAT"));
  assert(!text.includes(":KUBE-POSTROUTING"));
});
