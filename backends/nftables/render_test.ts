import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { chainElement } from "./chain_spec.ts";
import { renderText, withCounters } from "./render.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const WEB = testServicePlan({ name: "web", clusterIp: "172.30.0.1", to: ["10.0.0.1:8080"] });
const DB = testServicePlan({
  name: "db",
  clusterIp: "172.30.0.2",
  to: ["10.0.0.2:5432", "10.0.0.3:5432"],
  affinityTimeoutSeconds: 60,
});

function elements(text: Iterable<string>): string[] {
  return [...text].join("").split("\n").flatMap((line) =>
    /^ {2}(.*?),?$|^add element .* \{ (.*) \}$/.exec(line)?.slice(1).filter((text) => text) ?? []
  );
}

Deno.test("renderText() prints the needs of some ServicePorts, with the chains that they use", () => {
  const text = [...renderText(testProxyPlan([WEB, DB]), OPTIONS, new Set([WEB.key]))].join("");
  const { name: key } = chainElement("to-1");
  assertEquals(
    elements([text]).filter((line) => /to-1$|172/.test(line)),
    [
      `${key} : goto to-1`,
      `172.30.0.1 . tcp . 80 : ${key}`,
      "172.30.0.1 . tcp . 80 . 0x80000000 : 10.0.0.1 . 8080",
      "172.30.0.1",
    ],
  );
  assert(text.includes("add chain ip kube-relay to-1\n"), text);
  assert(!text.includes("sticky"), text);
});

Deno.test("renderText() reports omitted parts, with the reason", () => {
  const options = { ...OPTIONS, features: { ...OPTIONS.features, affinity: false } };
  const text = [...renderText(testProxyPlan([WEB, DB]), options)].join("");
  assertEquals(
    text.split("\n").at(-2),
    "# Left out: ns/db/TCP: Cannot express session affinity: the kernel lacks maps that rules can fill",
  );
  assertEquals(elements([text]).filter((line) => line.includes("172.30.0.2")), []);
});

Deno.test("withCounters() says the table that counts after the rest, for the same ServicePorts", () => {
  const plan = testProxyPlan([WEB, DB]);
  const before = [...renderText(plan, OPTIONS)].join("");
  const text = [...withCounters([before], plan, new Set([DB.key]))].join("");
  assert(text.startsWith(before));
  const rest = text.slice(before.length);
  assert(rest.startsWith("add table ip kube-relay-counters\n"), rest);
  assertEquals(elements([rest]), [
    "172.30.0.2 . tcp . 80 . original",
    "172.30.0.2 . tcp . 80 . reply",
  ]);
});
