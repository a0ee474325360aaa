/**
 * The pods of the cases of NetworkPolicy as namespaces on two nodes, both families.
 *
 * ```
 *  x/a x/b y/a ── y/b z/a           x/c y/c z/b z/c
 *        (cni0) n1 ───────── link ───────── n2 (cni0)
 * ```
 *
 * The first three reach each other across the bridge, and every other pod by its node.
 */
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { caseAddresses } from "../../policy/case_addresses.ts";
import { type CasePod, casePods } from "../../policy/policy_case.ts";
import { Namespace } from "./netns.ts";
import { NetworkScript } from "./network_script.ts";

/** The names of the nodes. */
export const CASE_NODES = ["n1", "n2"] as const;

/** The name of a node. */
export type CaseNode = typeof CASE_NODES[number];

const ON_SECOND_NODE: readonly CasePod[] = ["x/c", "y/c", "z/b", "z/c"];
const BRIDGED: readonly CasePod[] = ["x/a", "x/b", "y/a"];

const WIRING = {
  IPv4: { gateway: "192.0.2.254", nodes: { n1: "198.51.100.1", n2: "198.51.100.2" }, length: 32 },
  IPv6: {
    gateway: "2001:db8::fe",
    nodes: { n1: "2001:db8:64::1", n2: "2001:db8:64::2" },
    length: 128,
  },
} as const;

/** The namespaces. Disposing of it removes all of them and what runs in them. */
export interface PolicyCaseTopology extends AsyncDisposable {
  readonly nodes: Readonly<Record<CaseNode, Namespace>>;
  readonly pods: ReadonlyMap<CasePod, Namespace>;
}

/** The node of a pod. */
export function nodeOf(pod: CasePod): CaseNode {
  return ON_SECOND_NODE.includes(pod) ? "n2" : "n1";
}

/** Makes it. */
export async function createPolicyCaseTopology(): Promise<PolicyCaseTopology> {
  const labels = [...CASE_NODES, ...casePods().map((pod) => pod.replace("/", "-"))];
  const all = await Namespace.createAll(labels);
  const [n1, n2, ...rest] = all;
  const nodes = { n1: n1!, n2: n2! };
  const pods = new Map(casePods().map((pod, index) => [pod, rest[index]!]));
  const script = new NetworkScript();
  joinNodes(script, nodes);
  for (const [pod, namespace] of pods) joinPod(script, { pod, namespace, nodes });
  const dispose = () => Namespace.removeAll(all);
  await script.run().catch(async (error) => {
    await dispose();
    throw error;
  });
  return { nodes, pods, [Symbol.asyncDispose]: dispose };
}

function joinNodes(script: NetworkScript, nodes: PolicyCaseTopology["nodes"]): void {
  const [first, second] = CASE_NODES.map((name) => ({
    namespace: nodes[name],
    device: "eth0",
    addresses: IP_FAMILIES.map((family) =>
      `${WIRING[family].nodes[name]}/${family === "IPv4" ? 24 : 64}`
    ),
  }));
  script.link(first!, second!);
  for (const name of CASE_NODES) {
    const namespace = nodes[name];
    script.bridge({
      namespace,
      device: "cni0",
      addresses: IP_FAMILIES.map((family) => `${WIRING[family].gateway}/${WIRING[family].length}`),
    });
    script.sysctl(
      namespace,
      "net.ipv4.ip_forward=1",
      "net.ipv6.conf.all.forwarding=1",
      "net.ipv4.conf.all.send_redirects=0",
      "net.ipv4.conf.cni0.send_redirects=0",
      "net.bridge.bridge-nf-call-iptables=1",
      "net.bridge.bridge-nf-call-ip6tables=1",
    );
    const other = name === "n1" ? "n2" : "n1";
    const routes = casePods().flatMap((pod) =>
      IP_FAMILIES.map((family) => {
        const via = `via ${WIRING[family].nodes[other]}`;
        return `route add ${addressOf(pod, family)} ${nodeOf(pod) === name ? "dev cni0" : via}`;
      })
    );
    script.ip(namespace, ...routes);
  }
}

function joinPod(
  script: NetworkScript,
  { pod, namespace, nodes }: {
    readonly pod: CasePod;
    readonly namespace: Namespace;
    readonly nodes: PolicyCaseTopology["nodes"];
  },
): void {
  const addresses = IP_FAMILIES.map((family) =>
    `${addressOf(pod, family)}/${WIRING[family].length}`
  );
  script.link(
    { namespace, device: "eth0", addresses },
    { namespace: nodes[nodeOf(pod)], device: pod.replace("/", "-"), bridge: "cni0" },
  );
  script.sysctl(
    namespace,
    "net.ipv4.conf.all.accept_redirects=0",
    "net.ipv4.conf.eth0.accept_redirects=0",
    "net.ipv6.conf.eth0.accept_redirects=0",
  );
  for (const family of IP_FAMILIES) {
    const { gateway } = WIRING[family];
    script.ip(namespace, `route add ${gateway} dev eth0`, `route add default via ${gateway}`);
    const neighbours = BRIDGED.includes(pod) ? BRIDGED.filter((each) => each !== pod) : [];
    script.ip(
      namespace,
      ...neighbours.map((each) => `route add ${addressOf(each, family)} dev eth0`),
    );
  }
}

function addressOf(pod: CasePod, family: IpFamily): string {
  return caseAddresses(family).addressOf(pod);
}
