/**
 * Scenarios of the golden tests: real objects in YAML, and the settings that they are rendered with.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { KubeObject } from "../../lib/api/kind.ts";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { type IpFamily, IP_FAMILIES } from "../../lib/net/ip_address.ts";
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
export function goldenScenarioNames(): readonly string[] {
  return [...Deno.readDirSync(FOLDER)].map(({ name }) => name.replace(/\.yaml$/, "")).sort();
}

/** A scenario by its name. */
export function goldenScenario(name: string): PacketFlowScenario {
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
export function goldenFamilies(name: string): readonly IpFamily[] {
  const families = new Set(goldenScenario(name).services.flatMap(({ spec }) => spec.ipFamilies));
  return IP_FAMILIES.filter((family) => families.has(family));
}

/** Returns the plan of a scenario, on the node of the address plan. */
export function goldenPlan(name: string, family: IpFamily): ProxyPlan {
  return planScenario(goldenScenario(name), family);
}

function isService(object: KubeObject): object is Service {
  return "spec" in object;
}

function isSlice(object: KubeObject): object is EndpointSlice {
  return "endpoints" in object;
}
