/**
 * Tests NetworkPolicies by the whole program, with real packets: together with Services in each
 * mode, cut connections, restarts and the cleanup.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { PolicyTool } from "../../lib/app/policy/policy_backend.ts";
import { ADDRESSES, OTHER_NODE } from "../support/builders/address_plan.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText } from "../support/builders/raw_objects.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import type { ProbeTarget } from "../support/drivers/probe_protocol.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program, testUnless } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { onlyFrom, rawPod } from "../support/stages/policy_relay.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import type { RawObject } from "../conformance/server.ts";

const ignore = isMissing("policies with real packets", [
  ...netnsRequirements(),
  program("nft"),
  program("conntrack"),
]);
const test = testUnless(ignore);

const { IPv4 } = ADDRESSES;
/** The pod of the Service itself. */
const DIRECT = { protocol: "TCP", address: IPv4.localPods[0], port: 8080 } as const;

/** The pods of the cluster: the clients of both nodes are the labels of these names. */
function pods(): RawObject[] {
  const remote = rawPod("remote", IPv4.remotePodClient, { app: "remote" });
  return [
    rawPod("web", IPv4.localPods[0], { app: "web" }),
    rawPod("local", IPv4.localPodClient, { app: "local" }),
    { ...remote, spec: { nodeName: OTHER_NODE, containers: [] } },
  ];
}

async function writePolicies(scene: RelayScene, ...policies: RawObject[]): Promise<void> {
  const text = manifestText([...pods(), ...policies]);
  await replaceFile(`${scene.folder}/manifests/policies.yaml`, text);
}

async function becomes(client: ProbeClient, target: ProbeTarget, answer: string): Promise<void> {
  await eventually(
    `${target.address} answers '${answer}'`,
    async () => await client.who(target, 200) === answer,
  );
}

/** Names of the tables of policies on the node. */
async function policyTables(scene: RelayScene): Promise<readonly string[]> {
  const tables = await scene.cluster.node.output("nft", ["list", "tables"]);
  return tables.split("\n").filter((line) => line.includes("policy"));
}

for (const mode of ["nftables", "iptables", "userspace"] as const) {
  test(`policies are enforced together with Services in mode ${mode}, changed, and end with the policy`, async () => {
    await using scene = await RelayScene.create();
    await scene.write(webServices(), webSlices("a1"));
    await writePolicies(scene, onlyFrom("local"));
    const relay = scene.start([`--mode=${mode}`, "--network-policy"]);
    await relay.settled();
    const { localPodClient, remotePodClient, node } = scene.cluster;
    const [local, remote] = [localPodClient, remotePodClient].map((each) =>
      ProbeClient.start(each)
    ) as [ProbeClient, ProbeClient];
    await becomes(remote, DIRECT, "refused");
    assertEquals(await local.who(DIRECT), "pod-a1");
    assertEquals(await local.who(VIP), "pod-a1");
    assertEquals(await ProbeClient.start(node).who(DIRECT), "pod-a1", "the node always may");
    // Userspace mode takes the connection before it judges.
    const denied = mode === "userspace" ? "failed: the connection ended after ''" : "refused";
    assertEquals(await remote.who(VIP), denied);

    const open = await local.open(DIRECT);
    assertEquals(await open.who(), "pod-a1");
    await writePolicies(scene, onlyFrom("remote"));
    await becomes(remote, DIRECT, "pod-a1");
    await becomes(local, DIRECT, "refused");
    await relay.logged("Cut connections");
    assert(await open.who(1_000) !== "pod-a1", "an open connection that is denied stays");

    await writePolicies(scene);
    await becomes(local, DIRECT, "pod-a1");
    assertEquals(await relay.stop(), 0);
  });
}

for (const mode of ["nftables", "iptables", "userspace"] as const) {
  test(`mode ${mode} takes its rules of policies for its own, and for leftovers without policies`, async () => {
    await using scene = await RelayScene.create();
    const { node } = scene.cluster;
    await scene.write(webServices(), webSlices("a1"));
    await writePolicies(scene, onlyFrom("local"));
    // Something foreign: the check has ended when it is reported.
    const foreign = "kube-proxy-leftovers-nftables";
    await node.output("nft", ["add", "table", "ip", "kube-proxy"]);
    const start = async (args: readonly string[]) => {
      await using relay = scene.start([`--mode=${mode}`, ...args]);
      await relay.settled();
      await relay.logged(foreign);
      assertEquals(await relay.stop(), 0);
      const lines = relay.log.split("\n").filter((line) => line.includes("Foreign rules"));
      return lines.map((line) => /\bid=(\S+)/.exec(line)?.[1]).sort();
    };
    assertEquals(await start(["--network-policy"]), [foreign]);
    assert((await policyTables(scene)).length > 0, "the rules stay");
    assertEquals(await start([]), [foreign, "kube-relay-policies-left"]);
  });
}

test("userspace mode names the policy by which the node of a pod probably refuses an allowed client", async () => {
  await using scene = await RelayScene.create();
  const { localPodClient, remotePods: [far] } = scene.cluster;
  await scene.write(webServices(), webSlices("b1"));
  const pod = rawPod("far", IPv4.remotePods[0], { app: "web" });
  const onOtherNode = { ...pod, spec: { nodeName: OTHER_NODE, containers: [] } };
  await writePolicies(scene, onOtherNode, onlyFrom("local"));
  const relay = scene.start(["--network-policy"]);
  await relay.settled();
  const client = ProbeClient.start(localPodClient);
  await becomes(client, VIP, "pod-b1");
  // As the rules of its node do, which see another node and not the client.
  const refuse = "-p tcp --dport 8080 -j REJECT --reject-with tcp-reset";
  await far!.output("iptables", ["-A", "INPUT", ...refuse.split(" ")]);
  await becomes(client, VIP, "failed: the connection ended after ''");
  await relay.logged(
    "(ECONNREFUSED; probably denied on the node of the pod, which sees this node as the client: " +
      "NetworkPolicy default/web isolates default/far for ingress, and none of its rules allows it)",
  );
});

Deno.test({
  name: "userspace mode on a node without a tool for rules judges what it relays, and nothing else",
  ignore: isMissing("policies of userspace mode with real packets", netnsRequirements()),
  async fn() {
    await using scene = await RelayScene.create();
    await scene.write(webServices(), webSlices("a1"));
    await writePolicies(scene, onlyFrom("local"));
    const tools = `${scene.folder}/tools`;
    await Deno.mkdir(tools);
    const ip = (await scene.cluster.node.output("which", ["ip"])).trim();
    await Deno.symlink(ip, `${tools}/ip`);
    const relay = scene.start(["--network-policy"], { by: ["env", `PATH=${tools}`] });
    await relay.settled();
    const { localPodClient, remotePodClient, node } = scene.cluster;
    const [local, remote] = [localPodClient, remotePodClient].map((each) =>
      ProbeClient.start(each)
    ) as [ProbeClient, ProbeClient];
    const CLOSED = "failed: the connection ended after ''";
    await becomes(remote, VIP, CLOSED);
    assertEquals(await local.who(VIP), "pod-a1");
    assertEquals(await ProbeClient.start(node).who(VIP), "pod-a1", "the node always may");
    assertEquals(await remote.who(DIRECT), "pod-a1", "direct traffic is not covered");
    const { controllers: [controller] = [] } = await relay.status();
    assertEquals(controller?.facts.at(-1), {
      name: "Limit",
      text: "direct pod-to-pod traffic is not covered",
    });

    const open = await local.open(VIP);
    assertEquals(await open.who(), "pod-a1");
    await writePolicies(scene, onlyFrom("remote"));
    await becomes(remote, VIP, "pod-a1");
    await relay.logged("Cut relayed connections");
    assert(await open.who(1_000) !== "pod-a1", "an open connection that is denied stays");
    assertEquals(await local.who(VIP), CLOSED);
    assertEquals(await relay.stop(), 0);
  },
});

/** What a tool holds of policies on the node, in both families. */
async function remainsOf(scene: RelayScene, tool: PolicyTool): Promise<readonly string[]> {
  if (tool === "nftables") return await policyTables(scene);
  const { node } = scene.cluster;
  const texts = await Promise.all([
    node.output("iptables-save", []),
    node.output("ip6tables-save", []),
    node.output("ipset", ["list", "-n"]),
  ]);
  return texts.join("\n").split("\n").filter((line) => /KUBE-RELAY-(POLICY|[46])/.test(line));
}

for (const [former, next] of [["nftables", "iptables"], ["iptables", "nftables"]] as const) {
  Deno.test({
    name: `policies move from ${former} to ${next} without a gap, and leave nothing behind`,
    ignore: ignore || isMissing("policies by iptables", [program("iptables"), program("ipset")]),
    async fn() {
      await using scene = await RelayScene.create();
      await scene.write(webServices(), webSlices("a1"));
      await writePolicies(scene, onlyFrom("local"));
      const start = (tool: PolicyTool) =>
        scene.start(["--mode=userspace", "--network-policy", `--network-policy-mode=${tool}`]);
      const first = start(former);
      const remote = ProbeClient.start(scene.cluster.remotePodClient);
      await becomes(remote, DIRECT, "refused");
      assertEquals(await first.stop(), 0);

      const second = start(next);
      const answers = new Set<string>();
      await eventually(`the rules of ${former} are gone`, async () => {
        answers.add(await remote.who(DIRECT));
        return (await remainsOf(scene, former)).length === 0;
      });
      answers.add(await remote.who(DIRECT));
      assertEquals([...answers], ["refused"]);
      await writePolicies(scene, onlyFrom("remote"));
      await becomes(remote, DIRECT, "pod-a1");
      assertEquals(await second.stop(), 0);
      await scene.cleanup();
      assertEquals(await remainsOf(scene, next), []);
    },
  });
}

test("policies stay in force after kill -9, a restart and a stop, and go with --cleanup", async () => {
  await using scene = await RelayScene.create();
  await scene.write(webServices(), webSlices("a1"));
  await writePolicies(scene, onlyFrom("local"));
  const first = scene.start(["--mode=nftables", "--network-policy"]);
  await first.settled();
  const remote = ProbeClient.start(scene.cluster.remotePodClient);
  await becomes(remote, DIRECT, "refused");
  await first.kill();
  assertEquals(await remote.who(DIRECT), "refused", "after kill -9");

  const second = scene.start(["--mode=nftables", "--network-policy"]);
  let isSettled = false;
  const settled = second.settled().then(() => isSettled = true);
  const answers = new Set<string>();
  while (!isSettled) answers.add(await remote.who(DIRECT));
  await settled;
  assertEquals([...answers], ["refused"], "while it starts again");
  assertEquals(await second.stop(), 0);
  assertEquals(await remote.who(DIRECT), "refused", "after a stop");

  assertEquals((await policyTables(scene)).length, 2);
  assertStringIncludes(await scene.cleanup(), "policy");
  assertEquals(await policyTables(scene), []);
  assertEquals(await remote.who(DIRECT), "pod-a1");
});
