/**
 * Tests NetworkPolicies by iptables together with Services in ipvs mode: a packet for a ClusterIP
 * leaves the virtual server by OUTPUT, where it already has the address of its endpoint.
 */
import { assertEquals } from "@std/assert";
import type { RawObject } from "../conformance/server.ts";
import { ADDRESSES, OTHER_NODE } from "../support/builders/address_plan.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText } from "../support/builders/raw_objects.ts";
import { VIP, VIP_6, webServices, webSlices } from "../support/builders/web_service.ts";
import { ANSWER_MS, ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { onlyFrom, rawPod, rawPolicy } from "../support/stages/policy_relay.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("NetworkPolicy with IPVS", [GUEST, ...IPVS_MODE.requirements()]);

const { IPv4, IPv6 } = ADDRESSES;
/** The endpoint itself. */
const DIRECT = { protocol: "TCP", address: IPv4.localPods[0], port: 8080 } as const;

/** The labels of a pod are its name; both families. */
function pod(name: string, addresses: readonly string[], node = {}): RawObject {
  const [address = ""] = addresses;
  const podIPs = addresses.map((ip) => ({ ip }));
  const made = rawPod(name, address, { app: name });
  return { ...made, ...node, status: { phase: "Running", podIP: address, podIPs } };
}

function pods(): readonly RawObject[] {
  const elsewhere = { spec: { nodeName: OTHER_NODE, containers: [] } };
  return [
    pod("web", [IPv4.localPods[0], IPv6.localPods[0]]),
    pod("local", [IPv4.localPodClient, IPv6.localPodClient]),
    pod("remote", [IPv4.remotePodClient, IPv6.remotePodClient], elsewhere),
  ];
}

async function writePolicies(scene: RelayScene, ...policies: RawObject[]): Promise<void> {
  const text = manifestText([...pods(), ...policies]);
  await replaceFile(`${scene.folder}/manifests/policies.yaml`, text);
}

/** A denied connection is refused, or silent where the reset finds no way back through the server. */
async function check(
  client: ProbeClient,
  targets: readonly (typeof DIRECT | typeof VIP | typeof VIP_6)[],
  expected: string,
): Promise<void> {
  for (const target of targets) {
    const isAllowed = expected !== "denied";
    const timeoutMs = isAllowed ? ANSWER_MS : SILENCE_MS;
    await eventually(`${target.address} is ${expected}`, async () => {
      const answer = await client.who(target, timeoutMs);
      return isAllowed ? answer === expected : answer === "refused" || answer === "silent";
    });
    // It stays so.
    const answer = await client.who(target, timeoutMs);
    assertEquals(isAllowed ? answer : answer.replace(/refused|silent/, "denied"), expected);
  }
}

test("policies by iptables judge packets from ipvs mode by their endpoint, in both directions", async (t) => {
  await using scene = await RelayScene.create();
  await scene.cluster.node.sysctl(
    "net.bridge.bridge-nf-call-iptables=1",
    "net.bridge.bridge-nf-call-ip6tables=1",
  );
  await scene.write(webServices(), webSlices("a1"));
  await writePolicies(scene, onlyFrom("local"));
  await using relay = scene.start([
    ...IPVS_MODE.args,
    "--network-policy",
    "--network-policy-mode=iptables",
  ]);
  await relay.settled();
  const local = ProbeClient.start(scene.cluster.localPodClient);
  const remote = ProbeClient.start(scene.cluster.remotePodClient);
  const all = [DIRECT, VIP, VIP_6];
  await t.step("ingress of the endpoint", async () => {
    await check(remote, all, "denied");
    await check(local, all, "pod-a1");
    await writePolicies(scene, onlyFrom("remote"));
    await check(local, all, "denied");
    await check(remote, all, "pod-a1");
  });
  await t.step("egress of the client", async () => {
    const podSelector = { matchLabels: { app: "local" } };
    const policyTypes = ["Egress"];
    await writePolicies(scene, rawPolicy("local", { podSelector, policyTypes }));
    await check(local, all, "denied");
    await check(remote, all, "pod-a1");
    const to = [{ podSelector: { matchLabels: { app: "web" } } }];
    const egress = [{ to, ports: [{ port: 8080 }] }];
    await writePolicies(scene, rawPolicy("local", { podSelector, policyTypes, egress }));
    await check(local, all, "pod-a1");
    await scene.write(webServices(), webSlices("b1"));
    await check(local, [VIP, VIP_6], "denied");
    await check(remote, [VIP, VIP_6], "pod-b1");
  });
  assertEquals(await relay.stop(), 0);
});
