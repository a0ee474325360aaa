/**
 * Compares the exact text of rules for representative objects. `deno task golden:update` rewrites
 * the files; a reviewer judges the difference.
 */
import { assertEquals } from "@std/assert";
import { renderText } from "../../backends/iptables/render.ts";
import { renderText as renderIpvsText } from "../../backends/ipvs/render.ts";
import { renderText as renderNftText, withCounters } from "../../backends/nftables/render.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { planOptions } from "../packet_flow/iptables_executor.ts";
import { ipvsScenarioOptions } from "../packet_flow/ipvs_executor.ts";
import { nftScenarioOptions } from "../packet_flow/nft_executor.ts";
import { testProxyPlan, testServicePlan } from "../support/builders/service_plans.ts";
import type { KubeObject } from "../../lib/api/kind.ts";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { PacketFlowScenario, PacketFlowSettings } from "../packet_flow/packet_flow_case.ts";
import { planScenario } from "../packet_flow/plan_scenario.ts";
import { readManifest } from "../support/builders/manifest_reading.ts";

const FOLDER = new URL("./scenarios/", import.meta.url);

/** The differences from the defaults, by scenario. */
const SETTINGS: Readonly<Record<string, PacketFlowSettings>> = {
  "session_affinity": { localTraffic: { kind: "byBridge", interfaceName: "cni0" }, nodePortAddresses: ["primary"] },
};

/** The names of all scenarios, sorted. */
function goldenScenarioNames(): readonly string[] {
  return [...Deno.readDirSync(FOLDER)].map(({ name }) => name.replace(/\.yaml$/, "")).sort();
}

/** A scenario by its name. */
function goldenScenario(name: string): PacketFlowScenario {
  const text = Deno.readTextFileSync(new URL(`${name}.yaml`, FOLDER));
  const { objects, problems } = readManifest(text);
  assertEquals(problems, [], `scenario '${name}'`);
  const settings = SETTINGS[name];
  return {
    name,
    services: objects.filter(isService),
    slices: objects.filter(isSlice),
    ...(settings && { settings }),
  };
}

/** The families that a scenario has objects of. */
function goldenFamilies(name: string): readonly IpFamily[] {
  const families = new Set(goldenScenario(name).services.flatMap(({ spec }) => spec.ipFamilies));
  return IP_FAMILIES.filter((family) => families.has(family));
}

/** Returns the plan of a scenario, on the node of the address plan. */
function goldenPlan(name: string, family: IpFamily): ProxyPlan {
  return planScenario(goldenScenario(name), family);
}

function isService(object: KubeObject): object is Service {
  return "spec" in object;
}

function isSlice(object: KubeObject): object is EndpointSlice {
  return "endpoints" in object;
}

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

/**
 * Each scenario in one family: both have the same rules, by the packets of `tests/packet_flow`. What is
 * counted depends on addresses and ports only.
 */
const FILES = ["external_addresses.ipv4.txt", "session_affinity.ipv4.txt", "cluster_ips.ipv6.txt"];
const COUNTED_FILES = ["external_addresses.ipv4.txt", "cluster_ips.ipv6.txt"];

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
      const file = `${name}.${family.toLowerCase()}.txt`;
      if (!(mode === "nftables-counters" ? COUNTED_FILES : FILES).includes(file)) continue;
      files.set(file, () => render(name, family));
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
