/** The table of nftables mode in the kernel of a {@linkcode CompareStage}. */
import { assert, assertEquals } from "@std/assert";
import { TableListing } from "../../../backends/netfilter/nft/table_listing.ts";
import { servicesTable } from "../../../backends/nftables/containers.ts";
import { renderNftables } from "../../../backends/nftables/render.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { testProxyPlan } from "../builders/service_plans.ts";
import { FakeNft } from "../fakes/fake_nft.ts";
import { CompareStage, SHARED } from "./compare_stage.ts";

/** A backend that looks after its table so often. */
export function createNftStage(watchMs = 50): Promise<CompareStage> {
  return CompareStage.create("nftables", undefined, watchMs);
}

function render(plans: readonly ServicePlan[]): string {
  const plan = testProxyPlan(plans, { shared: SHARED });
  return [...renderNftables(plan, defaultRenderOptions("IPv4")).transaction.text()].join("");
}

/** Runs nft on the node. */
export function nft({ node }: CompareStage, command: string): Promise<string> {
  return node.output("nft", command.split(" "));
}

/** Compares sets, maps and chains of the kernel with a rendering from nothing. */
export async function checkTable(
  stage: CompareStage,
  plans: readonly ServicePlan[],
): Promise<void> {
  const listing = new TableListing();
  for (const line of (await nft(stage, "list table ip kube-relay")).split("\n")) listing.take(line);
  const { elements, rules } = listing.end();
  const fake = new FakeNft();
  fake.run(render(plans));
  const wanted = fake.table("ip kube-relay");
  for (const name of servicesTable("IPv4").containers.keys()) {
    // The packet path fills it.
    if (name === "affinity") continue;
    const found = [...elements.get(name) ?? []];
    const texts = (list: Iterable<[string, string]>) =>
      [...list].map(([key, value]) => `${key.replace(/0x8000[08]\w+$/, "")} ${value}`).sort();
    const expected = [...wanted.elements.get(name) ?? []];
    // Chains that nothing leads to stay for a while.
    if (name === "numbered-chains") {
      const missing = expected.filter(([key, value]) => elements.get(name)?.get(key) !== value);
      assertEquals(missing, [], name);
      continue;
    }
    // Which of the numbers an endpoint has is left to history.
    if (/endpoints|choices/.test(name)) assertEquals(texts(found), texts(expected), name);
    else assertEquals(found.sort(), expected.sort(), name);
  }
  for (const chain of wanted.chains.keys()) assert(rules.has(chain), chain);
}
