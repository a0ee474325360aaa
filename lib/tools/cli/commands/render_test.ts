import { assert, assertEquals } from "@std/assert";
import {
  testProxyPlan,
  testServicePlan,
} from "../../../../tests/support/builders/service_plans.ts";
import { renderHeading } from "./render.ts";
import { VERSION } from "../../../config/version.ts";

const PLAN = testProxyPlan([
  testServicePlan({ name: "web", portName: "http" }),
  testServicePlan({ name: "web", portName: "https", port: 443 }),
]);

function heading(options: Partial<Parameters<typeof renderHeading>[0]> = {}): readonly string[] {
  return renderHeading({
    mode: "iptables",
    family: "IPv4",
    nodeName: "node-a",
    isNodeKnown: true,
    asksKernel: false,
    plan: PLAN,
    keys: undefined,
    service: undefined,
    ...options,
  }).split("\n");
}

Deno.test("renderHeading() counts ports and Services", () => {
  const begin = `# kube-relay ${VERSION}, mode iptables, IPv4: `;
  assertEquals(heading(), [`${begin}2 ports of 1 Service, on node node-a.`, ""]);
  const keys = new Set([...PLAN.services.keys()].slice(0, 1));
  assertEquals(
    heading({ keys, service: "ns/web", nodeName: "n" }),
    [`${begin}1 port of Service ns/web, on node n.`, ""],
  );
});

Deno.test("renderHeading() prints the assumptions, in comments of at most 80 columns", () => {
  const lines = heading({ isNodeKnown: false, asksKernel: true });
  assert(lines.some((line) => line.startsWith("# There is no Node 'node-a': ")));
  assert(lines.some((line) => line.startsWith("# The kernel is assumed to support all ")));
  for (const line of lines.slice(0, -1)) assert(line.startsWith("# ") && line.length <= 80, line);
});
