/**
 * NetworkPolicies by the whole program on a Node with pod ranges: closed starts, and the link that the
 * pods share.
 */
import { assertEquals } from "@std/assert";
import { ADDRESSES, OTHER_NODE } from "../support/builders/address_plan.ts";
import { testNode } from "../support/builders/builders.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "../support/builders/raw_objects.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { onlyFrom, rawPod } from "../support/stages/policy_relay.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import type { RawObject } from "../conformance/server.ts";

const { IPv4 } = ADDRESSES;
const POD = { protocol: "TCP", address: IPv4.localPods[0], port: 8080 } as const;
const NODE = testNode({ spec: { podCIDRs: ["10.180.0.0/24", "fd00:10::a00/120"] } });

async function write(scene: RelayScene, ...objects: RawObject[]): Promise<void> {
  const text = manifestText([...rawObjects("Node", NODE), ...objects]);
  await replaceFile(`${scene.folder}/manifests/objects.yaml`, text);
}

for (const tool of ["nftables", "iptables"] as const) {
  const test = testNeeding("closed starts with real packets", [
    ...netnsRequirements(),
    ...(tool === "nftables" ? ["nft"] : ["iptables", "ipset"]).map(program),
  ]);
  test(`policies by ${tool}: a closed start lets no packet to a pod that is not known yet`, async () => {
    await using scene = await RelayScene.create();
    const client = rawPod("remote", IPv4.remotePodClient, { app: "remote" });
    const remotePod = { ...client, spec: { nodeName: OTHER_NODE, containers: [] } };
    await write(scene, remotePod);
    const relay = scene.start([
      ...["--network-policy", `--network-policy-mode=${tool}`, "--network-policy-start=closed"],
    ]);
    await relay.settled();
    const { node, remotePodClient } = scene.cluster;
    const [remote, own] = [remotePodClient, node].map((each) => ProbeClient.start(each));
    await eventually(
      "an unknown pod is closed",
      async () => await remote!.who(POD, 200) === "refused",
    );
    assertEquals(await own!.who(POD), "pod-a1", "its node always reaches it");

    const pod = rawPod("web", IPv4.localPods[0], { app: "web" });
    await write(scene, remotePod, pod);
    await eventually("a known pod is open", async () => await remote!.who(POD, 200) === "pod-a1");

    await write(scene, remotePod, pod, onlyFrom("local"));
    await eventually(
      "an isolated pod is closed",
      async () => await remote!.who(POD, 200) === "refused",
    );
    const [list, ...args] = tool === "nftables"
      ? ["nft", "list", "chain", "ip6", "kube-relay-policy", "ingress"]
      : ["ip6tables-save", "-t", "filter"];
    await eventually(
      "IPv6, of which the pod has a link-local address only, knows the bridge",
      async () => (await node.output(list!, args)).includes("cni0"),
    );
    assertEquals(await relay.stop(), 0);
  });
}
