/**
 * Compares the exact text of rules for representative objects. `deno task golden:update` rewrites
 * the files; a reviewer judges the difference.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { renderText } from "../../backends/iptables/render.ts";
import { renderText as renderIpvsText } from "../../backends/ipvs/render.ts";
import { renderText as renderNftText, withCounters } from "../../backends/nftables/render.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { planOptions } from "../packet_flow/iptables_executor.ts";
import { ipvsScenarioOptions } from "../packet_flow/ipvs_executor.ts";
import { nftScenarioOptions } from "../packet_flow/nft_executor.ts";
import { testProxyPlan, testServicePlan } from "../support/builders/service_plans.ts";
import { goldenFamilies, goldenPlan, goldenScenario, goldenScenarioNames } from "./golden_scenario.ts";

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

/** Enough Services for chains by address, by node port and by endpoint. */
function tree(): string {
  const services = Array.from({ length: 16 }, (_, index) =>
    testServicePlan({
      name: `part-${index}`,
      clusterIp: `172.30.${[0, 0, 4, 200][index % 4]}.${index + 1}`,
      nodePort: 30_000 + 97 * index,
      to: [`10.180.0.${index + 1}:8080`],
    }));
  const plan = testProxyPlan(services, {
    shared: {
      localTraffic: { kind: "byBridge", interfaceName: "cni0" },
      serviceCidrs: [parseCidr("172.30.0.0/16")],
    },
  });
  return [...renderText(plan, planOptions(plan))].join("");
}

for (const [mode, render] of Object.entries(MODES)) {
  const folder = new URL(`./${mode}/`, import.meta.url);
  const files = new Map<string, () => string>(mode === "iptables" ? [["tree.ipv4.txt", tree]] : []);
  for (const name of goldenScenarioNames()) {
    for (const family of goldenFamilies(name)) {
      files.set(`${name}.${family.toLowerCase()}.txt`, () => render(name, family));
    }
  }
  for (const [file, textOf] of files) {
    Deno.test(`golden rules: ${mode} ${file}`, () => {
      const path = new URL(file, folder);
      const text = textOf();
      if (UPDATE) Deno.writeTextFileSync(path, text);
      else assertEquals(text, Deno.readTextFileSync(path), "deno task golden:update rewrites it");
    });
  }

  Deno.test(`golden rules: every file of ${mode} belongs to a scenario`, () => {
    const found = [...Deno.readDirSync(folder)].map(({ name }) => name);
    assertEquals(found.sort(), [...files.keys()].sort());
  });
}
