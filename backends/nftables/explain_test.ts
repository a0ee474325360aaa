import { assertEquals, assertRejects } from "@std/assert";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { ModeExplanation } from "../../lib/proxy/packet_explanation.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import {
  testEndpoint,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { explainNftables, findAffinity } from "./explain.ts";
import type { Slots } from "./slots.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

const ENDPOINTS = [testEndpoint("10.0.0.1:80"), testEndpoint("10.0.0.2:80")];
const FORWARD = { kind: "forward", endpoints: ENDPOINTS } as const;
const WEB = testServicePlan({
  clusterIp: "10.96.0.1",
  internal: FORWARD,
  endpoints: ENDPOINTS,
  reachable: ENDPOINTS,
});
const OPTIONS = defaultRenderOptions("IPv4");

function explain(
  service: ServicePlan,
  {
    options = OPTIONS,
    appliedPlan = service,
    others = [],
    quarantined = [],
    port = 80,
    to = "10.96.0.1",
    from = "outside",
    shared = {},
  }: {
    readonly to?: string;
    readonly from?: Packet["from"]["kind"];
    readonly shared?: Partial<SharedPlan>;
    readonly options?: NftablesRenderOptions;
    readonly appliedPlan?: ServicePlan;
    readonly others?: readonly ServicePlan[];
    readonly quarantined?: readonly Quarantined[];
    readonly port?: number;
  } = {},
) {
  const plan = testProxyPlan([service, ...others], { shared });
  const packet: Packet = {
    from: { kind: from, address: parseIpAddress("203.0.113.1") },
    to: parseIpAddress(to),
    port: parsePort(port),
    protocol: "TCP",
  };
  const main = [...ENDPOINTS].reverse();
  let explained: ModeExplanation = { carriers: [] };
  explainPacket(plan, packet, {
    mode: "nftables",
    explain: (...question) =>
      explained = explainNftables(...question, options, {
        plan: appliedPlan,
        order: { internal: main, external: [], externalFromCluster: [] },
      }),
  }, { quarantined });
  return explained;
}

function endpointElements({ carriers }: ReturnType<typeof explain>): readonly string[] {
  return carriers.filter(({ name }) => name === "endpoints")
    .map(({ text }) => text.slice(text.lastIndexOf("0x"))).sort();
}

Deno.test("explainNftables() numbers endpoints as the kernel has them", () => {
  assertEquals(endpointElements(explain(WEB)), [
    "0x80000000 : 10.0.0.2 . 80",
    "0x80000001 : 10.0.0.1 . 80",
  ]);
});

Deno.test("explainNftables() goes by the plan if the kernel holds an older one", () => {
  assertEquals(endpointElements(explain(WEB, { appliedPlan: { ...WEB } })), [
    "0x80000000 : 10.0.0.1 . 80",
    "0x80000001 : 10.0.0.2 . 80",
  ]);
});

Deno.test("explainNftables() knows the missing features of a kernel", () => {
  const features = { affinity: false, reject: false };
  const options = { ...OPTIONS, features };
  const sticky = explain({ ...WEB, affinityTimeoutSeconds: 60 }, { options });
  assertEquals(sticky.deviations?.unserved?.startsWith("Cannot express session affinity"), true);
  const refused = explain({ ...WEB, internal: { kind: "reject" } }, { options });
  assertEquals(refused.deviations?.refusal?.kind, "drop");
});

Deno.test("explainNftables() refuses nothing at addresses of the node, or of a Service without elements", () => {
  const shared = { interfaceAddresses: [parseIpAddress("10.96.0.1")] };
  assertEquals(explain(WEB, { port: 81, shared }), { deviations: {}, carriers: [] });
  const options = { ...OPTIONS, features: { affinity: false, reject: true } };
  const sticky = { ...WEB, affinityTimeoutSeconds: 60 };
  assertEquals(explain(sticky, { port: 81, options }), { deviations: {}, carriers: [] });
});

Deno.test("explainNftables() knows that other hosts may not reach loopback addresses", () => {
  const options = { ...OPTIONS, localhostNodePorts: true };
  const to = "127.0.0.1";
  const { deviations, carriers } = explain(WEB, { options, to });
  assertEquals(deviations?.outcome?.kind, "drop");
  assertEquals(carriers.map(({ name }) => name), ["loopback-guard"]);
  assertEquals(explain(WEB, { options, to, from: "node" }).carriers, []);
  assertEquals(explain(WEB, { to }).carriers, []);
});

const SLOTS = new Map<string, number>([["10.0.0.1:80", 0x85f09234], [
  "10.0.0.2:80",
  0x85f08077,
]]) as ReadonlyMap<string, number> as Slots;
const CLIENT = "0x85f08000 . 10.0.0.9";

function packet(to: string): Pick<Packet, "from" | "to"> {
  return { from: { kind: "pod", address: parseIpAddress("10.0.0.9") }, to: parseIpAddress(to) };
}

function printed(value: string): string {
  return `table ip kube-relay {
\tmap affinity {
\t\telements = { ${CLIENT} timeout 3h expires 2h59m58s996ms : ${value} }
\t}
}`;
}

for (
  const [name, text, expected] of [
    ["a handle of tc, as nft prints a priority", printed("85f0:8077"), {
      endpoint: "10.0.0.2:80",
      expiresInSeconds: 10_798,
    }],
    ["a number", printed("0x85f08077"), { endpoint: "10.0.0.2:80", expiresInSeconds: 10_798 }],
    ["an endpoint that has gone", printed("1:2"), undefined],
    ["nothing", undefined, undefined],
  ] as const
) {
  Deno.test(`findAffinity() reads ${name}`, async () => {
    const asked: string[] = [];
    const element = (container: string, key: string) => {
      asked.push(`${container} { ${key} }`);
      return Promise.resolve(text);
    };
    const found = await findAffinity({ element }, SLOTS, packet("10.96.0.1"));
    assertEquals(asked, [`affinity { ${CLIENT} }`]);
    assertEquals<unknown>(found, expected);
  });
}

Deno.test("findAffinity() reports that it cannot ask in IPv6", async () => {
  const element = () => Promise.reject(new Error("asked"));
  await assertRejects(
    () => findAffinity({ element }, SLOTS, packet("fd00::1")),
    Error,
    "by a hash",
  );
});

Deno.test("findAffinity() asks for no client without an endpoint", async () => {
  const element = () => Promise.reject(new Error("asked"));
  assertEquals(await findAffinity({ element }, new Map(), packet("10.96.0.1")), undefined);
});
