/**
 * UDP clients that keep their sockets and never stop sending, while the Service that they send to
 * comes, changes and goes.
 */
import { assertEquals } from "@std/assert";
import type { EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { ADDRESSES } from "../builders/address_plan.ts";
import { testEndpointSlice, testService } from "../builders/builders.ts";
import { type KeptLine, ProbeClient } from "./echo_network.ts";
import { DEADLINE_FACTOR } from "../deadline_factor.ts";
import { eventually } from "../eventually.ts";
import type { RelayScene } from "../stages/relay_scene.ts";

const PORT = 80;
const NODE_PORT = 30_081;
/** Often enough for a packet at each step of a sync. */
const SEND_EVERY_MS = DEADLINE_FACTOR === 1 ? 100 : 1_000;
/** An answer on one machine has arrived by then. */
const SOON_MS = DEADLINE_FACTOR === 1 ? 400 : 5_000;
/** Longer than a sync, and shorter than conntrack remembers a flow that is not used. */
const DEADLINE_MS = 60_000;
const FAMILIES = ["IPv4", "IPv6"] as const;
const SERVICE = { IPv4: "dns", IPv6: "dns-6" } as const;

type Pod = "a1" | "b1";

/** Service `dns` of each family, with every kind of frontend. */
function dnsServices(): Service[] {
  return FAMILIES.map((family) => {
    const { clusterIp, externalIp, loadBalancerIp } = ADDRESSES[family];
    return testService(SERVICE[family], {
      type: "LoadBalancer",
      clusterIP: clusterIp,
      externalIPs: [externalIp],
      ports: [{ name: "dns", protocol: "UDP", port: PORT, nodePort: NODE_PORT }],
    }, { ingress: [{ ip: loadBalancerIp }] });
  });
}

function dnsSlices(pods: readonly Pod[]): EndpointSlice[] {
  return FAMILIES.map((addressType) => {
    const { localPods, remotePods } = ADDRESSES[addressType];
    const endpoints = pods.map((pod) => pod === "a1" ? localPods[0] : remotePods[0]);
    const ports = [{ name: "dns", protocol: "UDP", port: 8080 }];
    return testEndpointSlice(SERVICE[addressType], { addressType, endpoints, ports });
  });
}

interface Sender {
  /** Client, kind of frontend and family. */
  readonly name: string;
  readonly probes: ProbeClient;
  readonly line: KeptLine;
}

/** Senders on the node, in a pod and outside of the cluster, one for each frontend. */
async function startSenders({ cluster }: RelayScene): Promise<Sender[]> {
  const clients = { node: cluster.node, pod: cluster.localPodClient, outside: cluster.client };
  const senders: Sender[] = [];
  for (const [client, namespace] of Object.entries(clients)) {
    const probes = ProbeClient.start(namespace);
    for (const family of FAMILIES) {
      const { clusterIp, externalIp, loadBalancerIp, node } = ADDRESSES[family];
      const frontends = [
        ["cluster IP", clusterIp, PORT],
        ["external IP", externalIp, PORT],
        ["load balancer", loadBalancerIp, PORT],
        ["node port", node, NODE_PORT],
      ] as const;
      for (const [kind, address, port] of frontends) {
        const target = { protocol: "UDP", address, port } as const;
        const line = await probes.open(target, { everyMs: SEND_EVERY_MS });
        senders.push({ name: `${client}, ${kind}, ${family}`, probes, line });
      }
    }
  }
  return senders;
}

/**
 * The server that answers each sender, by the sender's name. "none" is silence or a refusal; a
 * process of the node that IPVS refuses may not send.
 */
async function answersTo(senders: readonly Sender[]): Promise<Record<string, string>> {
  const found = await Promise.all(
    [...Map.groupBy(senders, ({ probes }) => probes)].map(async ([probes, group]) => {
      const answers = await probes.whoOf(group.map(({ line }) => line.id), SOON_MS);
      return group.map(({ name }, index): [string, string] => [name, wordFor(answers[index]!)]);
    }),
  );
  return Object.fromEntries(found.flat());
}

function wordFor(answer: string): string {
  return /^silent$|^refused$|Operation not permitted/.test(answer) ? "none" : answer;
}

/** Waits until each sender has the expected answer. One that had it is not asked again. */
async function expectAnswers(
  what: string,
  { senders, answer }: { readonly senders: readonly Sender[]; readonly answer: string },
): Promise<void> {
  const got: Record<string, string> = {};
  const wrong = () => senders.filter(({ name }) => got[name] !== answer);
  const allAreRight = async () => {
    Object.assign(got, await answersTo(wrong()));
    return wrong().length === 0;
  };
  await eventually(what, allAreRight, { deadlineMs: DEADLINE_MS }).catch(() => {});
  assertEquals(got, Object.fromEntries(senders.map(({ name }) => [name, answer])), what);
}

/**
 * Each state of Service `dns` that a socket may outlive, in order, with the server that answers
 * then.
 */
const STATES: readonly {
  readonly what: string;
  readonly services?: readonly Service[];
  readonly pods?: readonly Pod[];
  readonly answer: string;
}[] = [
  { what: "before there is a Service", answer: "none" },
  {
    what: "the Service comes with an endpoint",
    services: dnsServices(),
    pods: ["a1"],
    answer: "pod-a1",
  },
  { what: "the endpoint is replaced", services: dnsServices(), pods: ["b1"], answer: "pod-b1" },
  { what: "the last endpoint goes", services: dnsServices(), pods: [], answer: "none" },
  { what: "another endpoint comes", services: dnsServices(), pods: ["a1"], answer: "pod-a1" },
  { what: "the Service goes", answer: "none" },
  { what: "the Service comes back without endpoints", services: dnsServices(), answer: "none" },
  { what: "its first endpoint comes", services: dnsServices(), pods: ["b1"], answer: "pod-b1" },
];

/**
 * Every sender is answered by the endpoint that there is, with the socket that it had before there was
 * a Service. kube-relay is started by the caller, and runs in any mode.
 */
export async function checkSendersFollowTheirService(
  scene: RelayScene,
  t: Deno.TestContext,
): Promise<void> {
  const other = testService("other", { clusterIP: "172.30.9.9" });
  const senders = await startSenders(scene);
  for (const { what, services = [], pods = [], answer } of STATES) {
    await t.step(`${what}: ${answer}`, async () => {
      await scene.write([other, ...services], dnsSlices(pods));
      await expectAnswers(what, { senders, answer });
    });
  }
  for (const { line } of senders) await line.close();
}
