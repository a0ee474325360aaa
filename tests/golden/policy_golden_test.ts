/** The exact text of rules for some policies; see `golden_test.ts`. */
import { assertEquals } from "@std/assert";
import { renderPolicies as renderIptables } from "../../backends/policy/iptables/layout.ts";
import { renderPolicies as renderNftables } from "../../backends/policy/nftables/layout.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { PolicyPlan } from "../../lib/policy/policy_plan.ts";
import { type PolicyPlanOptions, PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { POLICY_CASES } from "../policy/cases.ts";
import { applyStep, caseObjects } from "../policy/policy_case.ts";
import { IPV4_PLAN } from "../support/builders/policy_objects.ts";

const UPDATE = Deno.env.get("UPDATE_GOLDEN") === "1";
/** The text of a plan, by folder. */
const FOLDERS = { "policy-iptables": renderIptables, "policy-nftables": renderNftables } as const;

/** The case of each file, whose last step is rendered, and the differences from the defaults. */
const FILES: Readonly<
  Record<string, { readonly case: string } & Partial<Pick<PolicyPlanOptions, "deny" | "podLinks">>>
> = {
  denials: { case: "deny all, both ways", podLinks: ["cni0"] },
  ports: { case: "ports and names of one rule add up", podLinks: ["cni0"] },
  tiers: { case: "all three tiers" },
  "tiers-log": {
    case: "all three tiers",
    deny: { action: "drop", log: { perMinute: 10, group: 100 } },
  },
  log: { case: "one port, UDP", deny: { action: "drop", log: { perMinute: 10, group: 100 } } },
};

function planOf(
  { case: title, ...options }: (typeof FILES)[string],
  family: IpFamily,
): PolicyPlan {
  const step = POLICY_CASES.find(({ name }) => name === title)?.steps.at(-1);
  if (step === undefined) throw new Error(`There is no case '${title}'`);
  const addresses = caseAddresses(family);
  const closedRanges = options.deny?.log ? [parseCidr(addresses.range)] : [];
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, ...options, family, closedRanges });
  applyStep(state, caseObjects(step, addresses));
  planner.update();
  return planner.plan;
}

for (const [folder, render] of Object.entries(FOLDERS)) {
  const claimed = new Set<string>();
  const place = new URL(`./${folder}/`, import.meta.url);
  for (const [name, scenario] of Object.entries(FILES)) {
    const family = name === "denials" ? "IPv6" : "IPv4";
    const file = `${name}.${family.toLowerCase()}.txt`;
    claimed.add(file);
    Deno.test(`golden rules: ${folder} ${file}`, () => {
      const path = new URL(file, place);
      const text = [...render(planOf(scenario, family))].join("");
      if (UPDATE) Deno.writeTextFileSync(path, text);
      else assertEquals(text, Deno.readTextFileSync(path), "deno task golden:update rewrites it");
    });
  }

  Deno.test(`golden rules: every file of ${folder} belongs to a case`, () => {
    assertEquals(new Set([...Deno.readDirSync(place)].map(({ name }) => name)), claimed);
  });
}
