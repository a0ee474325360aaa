import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../../../tests/support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../../../tests/support/builders/builders.ts";
import { setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { explainStage } from "../../../tests/packet_flow/explain_executor.ts";
import type { PacketFlowScenario } from "../../../tests/packet_flow/packet_flow_case.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import type { KernelState } from "../../proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { type AskMachine, explainEnds, type ExplainReport } from "./explain_report.ts";
import { explanationReport } from "./explanation_view.ts";
import { paintText } from "../report.ts";

const { IPv4 } = ADDRESSES;
const HOSTILE = "evil\x1b[2J\u202e\nname";

const SCENARIO: PacketFlowScenario = {
  name: "view",
  services: [
    testService("web", {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      loadBalancerSourceRanges: [IPv4.clientRange],
      sessionAffinity: "ClientIP",
      ports: [{ name: "http", port: 80, nodePort: 30080 }],
    }, { ingress: [{ ip: IPv4.loadBalancerIp }] }),
    testService(HOSTILE, { clusterIP: "172.30.0.66" }),
    testService("dead", { clusterIP: "172.30.0.67" }),
    testService("misnamed", { clusterIP: "172.30.0.68", ports: [{ name: "http", port: 80 }] }),
  ],
  slices: [
    testEndpointSlice("web", {
      endpoints: [
        { addresses: [IPv4.localPods[0]], nodeName: THIS_NODE },
        { addresses: [IPv4.remotePods[0]], nodeName: OTHER_NODE },
        {
          addresses: [IPv4.remotePods[1]],
          nodeName: OTHER_NODE,
          conditions: { ready: false, serving: false, terminating: false },
        },
      ],
      ports: [{ name: "http", port: 8080 }],
    }),
    testEndpointSlice("misnamed", { endpoints: ["10.180.1.3"], ports: [{ name: "web", port: 1 }] }),
  ],
};

function explain(
  from: string,
  to: string,
  {
    mode = "iptables",
    isQuarantined = false,
    kernel = { kind: "asked", differences: [] },
    policies,
    scenario = SCENARIO,
    remembered,
    clock = new FakeClock(),
    compare = () => Promise.resolve(kernel.kind === "asked" ? kernel.differences : []),
    isUnsettled,
  }: {
    readonly clock?: FakeClock;
    readonly compare?: Backend["compare"];
    /** Syncs went on during the comparison. */
    readonly isUnsettled?: true;
    /** The endpoint that the machine remembers for the client. */
    readonly remembered?: string;
    readonly mode?: BackendMode;
    readonly policies?: PolicyState;
    readonly scenario?: PacketFlowScenario;
    /** Whether every ServicePort is in quarantine. */
    readonly isQuarantined?: boolean;
    readonly kernel?: KernelState;
  } = {},
): Promise<ExplainReport> {
  const { plan, backend } = explainStage(mode, scenario, "IPv4");
  const serving = ([key]: readonly ServicePortKey[] = []) =>
    [...plan.services.values()].filter((service) => service.key === key)
      .map(({ clusterIp, externalIps, port, protocol }) => ({
        key: key!,
        addresses: [clusterIp, ...externalIps].map((address) => (
          { role: "ClusterIP", address, port, protocol, state: "serving" } as const
        )),
      }));
  const machine: Partial<Backend> = {
    compare,
    findAffinity: () =>
      Promise.resolve(
        remembered === undefined ? undefined : { endpoint: remembered as EndpointKey },
      ),
    inspect: (keys) => Promise.resolve({ summary: "", services: serving(keys), quarantined: [] }),
  };
  const tracker = new EndpointTracker("IPv4", THIS_NODE, 0);
  for (const slice of scenario.slices ?? []) tracker.updateSlice(undefined, slice);
  tracker.drain();
  const world = {
    mode,
    nodeName: THIS_NODE,
    plans: new Map([["IPv4" as const, plan]]),
    nodeAddresses: [IPv4.node],
    services: () => scenario.services,
    policies,
    otherPorts: (_: IpFamily, key: ServicePortKey) => tracker.otherPorts(key),
    backend: () => ({ ...machine, mode, explain: backend.explain.bind(backend) }) as Backend,
    quarantined: () =>
      isQuarantined ? [...plan.services.keys()].map((key) => ({ key, reason: "no room" })) : [],
    machine: kernel.kind === "not asked"
      ? kernel.why
      : async (_: IpFamily, compare: (plan: ProxyPlan) => ReturnType<AskMachine>) => ({
        ...await compare(plan),
        ...(isUnsettled && { isUnsettled }),
      }),
  };
  return explainEnds(clock, { from, to }, world);
}

const painted = (report: ExplainReport) => paintText(explanationReport(report));

/** The sentences that each explanation must contain, without line breaks. */
const CASES: readonly (readonly [
  name: string,
  from: string,
  to: string,
  says: readonly string[],
])[] = [
  ["from a pod", IPv4.localPodClient, "172.30.0.41:80", [
    "FORWARDED to one of 2 endpoints of ns1/web:http.",
    "a pod: it is in 10.0.0.0/8, the range of pods",
    "the cluster IP of ns1/web:http",
    "internalTrafficPolicy Cluster: endpoints on every node",
    "2 of 3 may get it",
    "+ 10.180.0.1:8080 (this node)",
    "+ 10.180.1.1:8080 (on node-b)",
    "- 10.180.1.2:8080 (on node-b): not ready",
    "stays 10.180.0.99: pods keep their address",
    "keeps its endpoint until it has been idle for 10800 s",
    "no endpoint is remembered for this client",
    "rule (nat): -A KUBE-SERVICES -d 172.30.0.41",
    "asked just now: it has all of it",
  ]],
  ["from outside", IPv4.client, IPv4.loadBalancerIp, [
    "FORWARDED to 10.180.0.1:8080, the only endpoint of ns1/web:http that may get it.",
    "counts as outside: it is not in 10.0.0.0/8",
    `admit ${IPv4.client}: ${IPv4.clientRange}`,
    "only endpoints on this node (node-a)",
    "(on node-b): not on this node, and the policy is Local",
    "externalTrafficPolicy Local keeps the client's address",
  ]],
  ["not admitted", IPv4.blockedClient, IPv4.loadBalancerIp, [
    `DROPPED in silence: the source ranges of ns1/web:http do not admit ${IPv4.blockedClient}.`,
    "KUBE-PROXY-FIREWALL",
  ]],
  ["from the node", "node", "172.30.0.41:80", [
    "this node itself",
    "CHANGES from 192.168.0.2 to an address of the node",
  ]],
  ["to its own node port", IPv4.localPodClient, "node:30080", [
    "externalTrafficPolicy Local applies to outside clients only, not to pods and the node",
  ]],
  ["a pod that may reach itself", IPv4.localPods[0], "172.30.0.41:80", [
    "10.180.0.1:8080 would get its own packet (hairpin)",
  ]],
  ["without endpoints", IPv4.client, "172.30.0.67:80", [
    "REFUSED at once: ns1/dead has no endpoints.",
  ]],
  ["to a Service whose slice has another port", IPv4.client, "172.30.0.68:80", [
    "REFUSED at once: ns1/misnamed:http has no endpoints.",
    "slice misnamed-1 has 1 endpoint, but its port is 'web'; the Service has 'http'",
  ]],
  ["to the port of the endpoints", IPv4.client, "172.30.0.41:8080", [
    "NOT HANDLED: no Service has 172.30.0.41:8080/TCP.",
    "172.30.0.0/16, from which cluster IPs are taken",
    "ns1/web:http has this address, on port 80/TCP; 8080 is the port of its endpoints",
  ]],
  ["to another port", IPv4.client, "172.30.0.67:81", [
    "ns1/dead has this address, on port 80/TCP",
  ]],
  ["straight to a pod", IPv4.client, "10.180.1.1:8080", [
    "is an endpoint of ns1/web:http itself",
  ]],
  ["to a node port of another node", "outside", "192.168.7.7:30080", [
    "Note: 192.0.2.1 represents any outside client",
    "30080/TCP is the node port of ns1/web:http; node ports are on 127.0.0.1, 192.168.0.2",
  ]],
  ["to the wrong address", IPv4.client, "172.30.0.69:80", [
    "ns1/dead has port 80/TCP on 172.30.0.67",
  ]],
];

for (const [name, from, to, says] of CASES) {
  Deno.test(`explanationReport() of a packet ${name}`, async () => {
    const text = painted(await explain(from, to));
    const flat = text.replaceAll(/\s+/g, " ");
    for (const words of says) assertStringIncludes(flat, words);
    for (const line of text.split("\n")) assert(line.length <= 80 || !/ \S+ /.test(line), line);
  });
}

Deno.test("explanationReport() says that a ServicePort is in quarantine, and why", async () => {
  const text = painted(await explain("node", "172.30.0.41:80", { isQuarantined: true }));
  const flat = text.replaceAll(/\s+/g, " ");
  assertStringIncludes(flat, "NOT HANDLED: ns1/web:http is IN QUARANTINE, so this address");
  assertStringIncludes(flat, "no room");
});

Deno.test("explanationReport() lets no text of a manifest through that moves the cursor", async () => {
  for (const to of ["172.30.0.66:80", "172.30.0.66:81"]) {
    for (const mode of ["iptables", "ipvs", "nftables", "userspace"] as const) {
      const text = painted(await explain("node", to, { mode }));
      assertStringIncludes(text, "evil");
      // deno-lint-ignore no-control-regex
      assert(!/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/.test(text), JSON.stringify(text));
      assertEquals(text.split("\n").filter((line) => line.startsWith("name")), []);
    }
  }
});

Deno.test("explanationReport() describes sockets if the kernel has no rules", async () => {
  const text = painted(await explain("node", "172.30.0.41:80", { mode: "userspace" }));
  assertStringIncludes(text, "looked just now: the sockets are as they should be");
});

Deno.test("explainEnds() lets an isolated pod reach an endpoint of its own node's network", async () => {
  const policies = new PolicyState();
  setPod(policies, "default/client", { address: IPv4.localPodClient, nodeName: THIS_NODE });
  setPolicy(policies, "default/none", { podSelector: {}, policyTypes: ["Egress"] });
  const denied = async (endpoint: string) => {
    const endpoints = [{ addresses: [endpoint], nodeName: THIS_NODE }];
    const slices = [testEndpointSlice("api", { endpoints, ports: [{ port: 6443 }] })];
    const scenario = { name: "api", services: [testService("api")], slices };
    const options = { mode: "userspace", policies, scenario } as const;
    const { packets } = await explain("default/client", "ns1/api", options);
    // Its own node sees the sender itself.
    assertEquals(packets[0]?.policies?.receivers.map(({ seesNode }) => seesNode), [undefined]);
    return packets.map(({ policies }) => policies?.isDenied);
  };
  assertEquals(await denied(IPv4.node), [false]);
  assertEquals(await denied(IPv4.localPods[0]), [true]);
});

Deno.test("explainEnds() names a remembered endpoint only if the packet may go to it", async () => {
  const entry = async (remembered: string) => {
    const { packets } = await explain(IPv4.client, IPv4.loadBalancerIp, { remembered });
    return packets[0]?.affinity?.entry;
  };
  assertEquals<unknown>(await entry("10.180.0.1:8080"), { endpoint: "10.180.0.1:8080" });
  assertEquals(await entry("10.180.1.1:8080"), "none");
  const refused = await explain(IPv4.blockedClient, IPv4.loadBalancerIp);
  assert(refused.packets[0]!.steps.every(({ topic }) => topic !== "endpoints"));
});

const PORTS: PacketFlowScenario = {
  name: "ports",
  services: [
    testService("web", { ports: ["a", "b", "c"].map((name, at) => ({ name, port: 80 + at })) }),
  ],
};

Deno.test("explainEnds() asks the kernel once for all packets, and gives each its own differences", async () => {
  const asked: unknown[] = [];
  const compare: Backend["compare"] = (_, { keys } = {}) => {
    asked.push([...keys ?? []]);
    const [, key] = [...keys ?? []];
    return Promise.resolve([
      { object: "rule", name: "of b", kind: "missing", key: key! },
      { object: "chain", name: "shared", kind: "missing" },
    ]);
  };
  const { packets } = await explain("node", "ns1/web", { scenario: PORTS, compare });
  assertEquals(asked, [["ns1/web:a/TCP", "ns1/web:b/TCP", "ns1/web:c/TCP"]]);
  assertEquals(
    packets.map(({ kernel }) =>
      kernel.kind === "asked" && kernel.differences.map(({ name }) => name)
    ),
    [["shared"], ["of b", "shared"], ["shared"]],
  );
});

Deno.test("explainEnds() reports no unfinished change as damage", async () => {
  const ask = async (differences: readonly DataPlaneDifference[]) => {
    const kernel: KernelState = { kind: "asked", differences };
    const { packets } = await explain("node", "172.30.0.41:80", { kernel, isUnsettled: true });
    return packets[0]?.kernel;
  };
  assertEquals(await ask([]), { kind: "asked", differences: [] });
  assertEquals(await ask([{ object: "chain", name: "x", kind: "missing" }]), {
    kind: "not asked",
    why: "syncs were changing it; ask again",
  });
});
