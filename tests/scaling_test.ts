/**
 * Tests that the cost of one tenant's Service is proportional to its size. Four times the size must
 * take less than nine times as long; quadratic work takes sixteen times.
 */
import { assert, assertEquals, fail } from "@std/assert";
import process from "node:process";
import { NftablesLayout } from "../backends/nftables/layout.ts";
import type { EndpointSlice } from "../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../lib/api/kinds/service.ts";
import { SERVICE_CIDR } from "../lib/api/kinds/service_cidr.ts";
import { planWhatIf, whatIfReport } from "../lib/tools/diff/what_if.ts";
import { paintText } from "../lib/tools/report.ts";
import { type PlannedNode, planObjects } from "../lib/tools/offline/planned_node.ts";
import { explainPacket } from "../lib/proxy/explain_packet.ts";
import { parseIpAddress } from "../lib/net/ip_address.ts";
import { parsePort } from "../lib/net/port.ts";
import { type Backend, BACKEND_MODES, type BackendMode } from "../lib/proxy/backend.ts";
import type { ProxyPlan } from "../lib/proxy/proxy_plan.ts";
import { createMachine } from "../main.ts";
import { THIS_NODE } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { defaultRenderOptions } from "./support/builders/nftables_render_options.ts";
import { rawObjects } from "./support/builders/raw_objects.ts";
import { testServicePlan, testSharedPlan } from "./support/builders/service_plans.ts";
import { testDumpParts, testInformers } from "./support/builders/test_dump.ts";
import { MemoryLogger } from "./support/fakes/memory_logger.ts";
import { withFolder } from "./support/with_folder.ts";

const DEPENDENCIES = { ...await createMachine().loadAll(), logger: new MemoryLogger() };
const PARTS = testDumpParts();
const CLUSTER_IP = "172.30.0.41";
const FEW_ENDPOINTS = ["10.180.0.1", "10.180.0.2", "10.180.0.3", "10.180.0.4"];

interface Objects {
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
}

function each<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

function addresses(first: number, count: number): string[] {
  return each(count, (index) => `${first}.${index >> 16}.${(index >> 8) & 255}.${index & 255}`);
}

function web(spec: Partial<Service["spec"]> = {}): Service {
  return testService("web", { clusterIP: CLUSTER_IP, ...spec });
}

/** Objects in which one thing grows. */
const OBJECTS = {
  ports: (count: number): Objects => ({
    services: [web({ ports: each(count, (index) => ({ name: `p${index}`, port: index + 1 })) })],
    slices: [testEndpointSlice("web", {
      endpoints: FEW_ENDPOINTS,
      ports: each(count, (index) => ({ name: `p${index}`, port: 8080 })),
    })],
  }),
  endpoints: (count: number): Objects => ({
    services: [web()],
    slices: [testEndpointSlice("web", { endpoints: addresses(10, count) })],
  }),
  slices: (count: number): Objects => ({
    services: [web()],
    slices: addresses(10, count).map((address, index) =>
      testEndpointSlice("web", { name: `web-${index}`, endpoints: [address] })
    ),
  }),
  "external IPs": (count: number): Objects => ({
    services: [web({ externalIPs: addresses(30, count) })],
    slices: [testEndpointSlice("web", { endpoints: FEW_ENDPOINTS })],
  }),
  "Services with one external IP": (count: number): Objects => ({
    services: addresses(172, count).map((clusterIP, index) =>
      testService(`web-${index}`, { clusterIP, externalIPs: ["198.51.100.7"] })
    ),
    slices: [testEndpointSlice("web-0", { endpoints: FEW_ENDPOINTS })],
  }),
} as const;

async function planned(mode: BackendMode, { services, slices }: Objects): Promise<PlannedNode> {
  return await planObjects(DEPENDENCIES, {
    informers: testInformers({
      services,
      endpointslices: slices,
      nodes: [testNode()],
      servicecidrs: [...PARTS.informers.of(SERVICE_CIDR).values()],
    }),
    configuration: PARTS.configuration,
    mode,
    nodeName: THIS_NODE,
    families: ["IPv4"],
  });
}

/** An operation on a plan. */
type Work = (scene: { readonly plan: ProxyPlan; readonly backend: Backend }) => void;

const WORK = {
  render: ({ plan, backend }) => {
    for (const _ of backend.render(plan));
  },
  "render --service": ({ plan, backend }) => {
    for (const _ of backend.render(plan, new Set(plan.services.keys())));
  },
  explain: ({ plan, backend }) => {
    const from = { kind: "outside", address: parseIpAddress("192.0.2.9") } as const;
    const to = { to: parseIpAddress(CLUSTER_IP), port: parsePort(80), protocol: "TCP" } as const;
    explainPacket(plan, { from, ...to }, backend);
  },
} as const satisfies Record<string, Work>;

/**
 * Processor time of this process alone, the best of three: other processes are running at the same
 * time.
 */
async function costOf(work: () => unknown): Promise<number> {
  const costs: number[] = [];
  for (let run = 0; run < 3; run++) {
    const before = process.cpuUsage();
    await work();
    costs.push(process.cpuUsage(before).user / 1000);
  }
  return Math.min(...costs);
}

/** Another program may take the caches of the processor meanwhile; quadratic work fails each time. */
const MOST_ATTEMPTS = 4;

async function assertLinear(
  count: number,
  prepare: (count: number) => Promise<() => unknown>,
): Promise<void> {
  const figures: string[] = [];
  for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    const small = await costOf(await prepare(count));
    const large = await costOf(await prepare(4 * count));
    if (large < 9 * small + 200) return;
    figures.push(`${small} ms for ${count}, ${large} ms for ${4 * count}`);
  }
  fail(figures.join("; "));
}

for (
  const [mode, count, what, work] of [
    ["iptables", 800, "ports", "render --service"],
    ["iptables", 6000, "external IPs", "render"],
    ["nftables", 1000, "endpoints", "explain"],
    ["ipvs", 1000, "external IPs", "render"],
    ["ipvs", 1000, "Services with one external IP", "render"],
    ["userspace", 10_000, "external IPs", "render"],
  ] as const
) {
  Deno.test(`scaling: ${work} with many ${what} in ${mode} mode`, async () => {
    await assertLinear(count, async (count) => {
      const { plans, createBackend } = await planned(mode, OBJECTS[what](count));
      const [plan, backend] = [plans.get("IPv4")!, createBackend("IPv4")];
      return () => WORK[work]({ plan, backend });
    });
  });
}

Deno.test("scaling: planning many slices of one Service", async () => {
  await assertLinear(3000, (count) => {
    const objects = OBJECTS.slices(count);
    return Promise.resolve(() => planned("userspace", objects));
  });
});

Deno.test("scaling: a change of many ports of one Service in nftables mode", async () => {
  await assertLinear(4000, (count) => {
    const plans = each(
      count,
      (index) => testServicePlan({ portName: `p${index}`, port: index + 1 }),
    );
    return Promise.resolve(() => {
      const layout = new NftablesLayout(testSharedPlan(), defaultRenderOptions("IPv4"));
      for (const plan of plans) layout.set(plan);
      for (const plan of plans) layout.set({ ...plan });
      for (const { key } of plans) layout.delete(key);
    });
  });
});

for (const mode of BACKEND_MODES) {
  Deno.test(`scaling: diff --from with many ports of one Service in ${mode} mode`, async () => {
    const before = await planned(mode, { services: [], slices: [] });
    await withFolder(async (folder) => {
      await assertLinear(600, async (count) => {
        const { services, slices } = OBJECTS.ports(count);
        const items = [
          ...rawObjects("Service", ...services),
          ...rawObjects("EndpointSlice", ...slices),
        ];
        const text = JSON.stringify({ apiVersion: "v1", kind: "List", items });
        await Deno.writeTextFile(`${folder}/${count}.json`, text);
        const { relay, proxy } = PARTS.configuration;
        const configuration = {
          ...{ mode, notices: [], flags: {} },
          proxy,
          relay: { ...relay, manifests: [`${folder}/${count}.json`] },
        };
        return async () => {
          const whatIf = await planWhatIf(DEPENDENCIES, before, configuration, undefined);
          assertEquals(whatIf.families.map(({ changes }) => changes.length), [count]);
          paintText(whatIfReport(whatIf));
        };
      });
    });
  });
}

Deno.test("diff --from prints the changes of 30,000 ports", () => {
  const changes = each(30_000, (index) => ({
    ...{ kind: "added", details: ["1 endpoint"] },
    key: `ns/web:p${index}/TCP`,
  }));
  const text = paintText(whatIfReport(
    {
      before: { mode: "iptables", nodeName: THIS_NODE },
      families: [{ family: "IPv4", changes, shared: [] }],
      ...{ policies: [], problems: [] },
    } as unknown as Parameters<typeof whatIfReport>[0],
  ));
  assert(text.includes("ns/web:p29999 TCP"));
});
