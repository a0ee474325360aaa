/**
 * Compares the exact text of rules for representative objects. `deno task golden:update` rewrites
 * the files; a reviewer judges the difference.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { renderText } from "../../backends/iptables/render.ts";
import { renderText as renderIpvsText } from "../../backends/ipvs/render.ts";
import { renderText as renderNftText, withCounters } from "../../backends/nftables/render.ts";
import { type IpFamily, IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { planOptions } from "../packet_flow/iptables_executor.ts";
import { ipvsScenarioOptions } from "../packet_flow/ipvs_executor.ts";
import { nftScenarioOptions } from "../packet_flow/nft_executor.ts";
import { goldenPlan, goldenScenario, goldenScenarioNames } from "./golden_scenario.ts";

const UPDATE = Deno.env.get("UPDATE_GOLDEN") === "1";

/** Renders a scenario in each mode, by the function of `kube-relay render`. */
const MODES: Readonly<Record<string, (name: string, family: IpFamily) => string>> = {
  iptables(name, family) {
    const plan = goldenPlan(name, family);
    return [...renderText(plan, planOptions(plan))].join("");
  },
  ipvs(name, family) {
    return [...renderIpvsText(goldenPlan(name, family), ipvsScenarioOptions(family))].join("");
  },
  "nftables-counters": (name, family) =>
    [...withCounters([], goldenPlan(name, family))].join(""),
  nftables(name, family) {
    const options = nftScenarioOptions(goldenScenario(name), family);
    return [...renderNftText(goldenPlan(name, family), options)].join("");
  },
};

for (const [mode, render] of Object.entries(MODES)) {
  const folder = new URL(`./${mode}/`, import.meta.url);
  const claimed = new Set<string>();
  for (const name of goldenScenarioNames()) {
    for (const family of IP_FAMILIES) {
      const file = `${name}.${family.toLowerCase()}.txt`;
      claimed.add(file);
      Deno.test(`golden rules: ${mode} ${file}`, () => {
        const path = new URL(file, folder);
        const text = render(name, family);
        if (UPDATE) Deno.writeTextFileSync(path, text);
        else assertEquals(text, Deno.readTextFileSync(path), "deno task golden:update rewrites it");
      });
    }
  }

  Deno.test(`golden rules: every file of ${mode} belongs to a scenario`, () => {
    const files = [...Deno.readDirSync(folder)].map(({ name }) => name);
    assertEquals(files.filter((file) => !claimed.has(file)), []);
    assert(files.length > 0);
  });
}
