/** Reduces a table of nftables mode to its relevant content, whatever was in it before. */
import { baseChains } from "../../../backends/nftables/chain_spec.ts";
import { EXPRESSIONS, TABLE } from "../../../backends/nftables/containers.ts";
import { renderNftables } from "../../../backends/nftables/render.ts";
import type { NftablesRenderOptions } from "../../../backends/nftables/render_options.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { FakeNft, type FakeNftTable } from "../fakes/fake_nft.ts";

const NUMBERED = /^(node-port-)?(endpoints|choices)$/;

/** All of a table that matters: what nothing leads to is left out, and so is the order of endpoints. */
export function nftMeaning(
  { chains, elements }: Pick<FakeNftTable, "chains" | "elements">,
  options: NftablesRenderOptions,
): unknown {
  const numbers = new Set(
    ["service-ips", "node-ports"].flatMap((name) => [...elements.get(name)?.values() ?? []]),
  );
  const admitted = new Set(elements.get("admitted")?.values());
  const used = [...elements.get("numbered-chains") ?? []]
    .filter(([number, value]) => numbers.has(number) || admitted.has(value));
  const targets = new Set(used.map(([, value]) => value.replace("goto ", "")));
  const lasting = new Set(baseChains({ options }).map(({ name }) => name));
  const numbered = [...elements].filter(([name]) => NUMBERED.test(name));
  return {
    chains: new Map([...chains].filter(([name]) => lasting.has(name) || targets.has(name)).sort()),
    elements: new Map([...elements].map(([name, values]) => [
      name,
      (name === "numbered-chains" ? used : [...values]).map(([key, value]) =>
        // Which of the numbers an endpoint has is left to history; in which list it is, is not.
        `${NUMBERED.test(name) ? key.replace(/0x8000[08]\w+$/, listOf) : key} ${value}`
      ).sort(),
    ])),
    numbers: numbered.map(([name, values]) => [name, [...values.keys()].sort()]),
  };
}

/** The table that a machine without one is given for a plan. */
export function freshNftTable(plan: ProxyPlan, options: NftablesRenderOptions): FakeNftTable {
  const nft = new FakeNft();
  nft.run([...renderNftables(plan, options).transaction.text()].join(""));
  return nft.table(`${EXPRESSIONS[plan.family].table} ${TABLE}`);
}

function listOf(number: string): string {
  return number < "0x80008000" ? "main" : "local";
}
