/** Tests a start next to a live kube-proxy, and in its place, with real packets. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";

const test = testNeeding("takeover with real packets", [
  ...netnsRequirements(),
  program("iptables-nft"),
]);

const { clusterIp, localPods: [pod] } = ADDRESSES.IPv4;

/**
 * The rules of kube-proxy for Service `web`, and two rules of other programs. The second one, as a
 * CNI plugin may have it, keeps connection tracking on when the rules of kube-proxy are removed
 * (docs/upgrade.md).
 */
const RULES = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 192.0.2.99/32 -j MASQUERADE
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -s 192.0.2.99/32 -j ACCEPT
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d ${clusterIp}/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination ${pod}:8080
COMMIT
`;

/** A node that kube-proxy serves. */
class KubeProxyScene implements AsyncDisposable {
  private constructor(readonly scene: RelayScene, readonly kubeProxy: LineProcess) {}

  static async create(): Promise<KubeProxyScene> {
    const scene = await RelayScene.create();
    const { node } = scene.cluster;
    await scene.write(webServices(), webSlices("a1"));
    const { code, stderr } = await systemCommandRunner.run(
      "ip",
      ["netns", "exec", node.name, "iptables-nft-restore", "--noflush"],
      { stdin: RULES },
    );
    assertEquals(code, 0, stderr);
    const kubeProxy = node.startDeno(
      new URL("../support/fakes/fake_kube_proxy.ts", import.meta.url),
      ["iptables"],
    );
    await kubeProxy.nextLine();
    return new KubeProxyScene(scene, kubeProxy);
  }

  async rules(): Promise<string> {
    const text = await this.scene.cluster.node.output("iptables-nft-save", []);
    return text.split("\n").filter((line) => !line.startsWith("#")).join("\n")
      .replaceAll(/\[\d+:\d+\]/g, "[0:0]");
  }

  /** Rules and addresses. */
  async state(): Promise<string> {
    return await this.rules() + await this.scene.snapshot();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}

test("takeover: next to a live kube-proxy, kube-relay does not start, and changes nothing", async () => {
  await using stage = await KubeProxyScene.create();
  const before = await stage.state();
  const relay = stage.scene.start();
  assertEquals(await relay.ended(), 1);
  for (
    const words of ["Cannot start: ", "127.0.0.1:10249/proxyMode says iptables", "--takeover"]
  ) {
    assertStringIncludes(relay.log, words);
  }
  assertEquals(adviceIn(relay.log), [true, true]);
  assertEquals(await stage.state(), before);
});

/** Whether a text advises to keep kubeadm's ConfigMap, which kube-relay's DaemonSet mounts, and to take over. */
function adviceIn(text: string): readonly boolean[] {
  assertEquals(/delete[^.]*ConfigMap/i.test(text), false, text);
  return [text.includes("keep its ConfigMap"), text.includes("start kube-relay with --takeover")];
}

test("takeover: --dry-run shows the removals, and changes nothing", async () => {
  await using stage = await KubeProxyScene.create();
  const before = await stage.state();
  const { cluster: { node }, folder } = stage.scene;
  const args = [`--manifests=${folder}/manifests`, "--takeover", "--dry-run"];
  const shown = await RelayProcess.run(node, { folder, args });
  for (
    const words of [
      "127.0.0.1:10249/proxyMode says iptables",
      "would remove chain KUBE-SERVICES in nat (iptables-nft)\n",
      "\n-X KUBE-SEP-AAAAAAAAAAAAAAAA\n",
      "It would write its rules again: ",
    ]
  ) assertStringIncludes(shown, words);
  assertEquals(adviceIn(shown), [true, false]);
  assertEquals(await stage.state(), before);
});

test("takeover: no connection fails while kube-relay starts and kube-proxy stops", async () => {
  await using stage = await KubeProxyScene.create();
  const { scene, kubeProxy } = stage;
  const client = ProbeClient.start(scene.cluster.client);
  assertEquals(await client.who(VIP), "pod-a1", "kube-proxy's rules serve");
  await client.startLoad([{ ...VIP, expect: ["pod-a1"] }], { perSecond: 150 });
  const relay = scene.start(["--takeover"]);
  await relay.settled();
  await eventually("its rules are gone", async () => !(await stage.rules()).includes("KUBE-"));
  assertStringIncludes(await stage.rules(), "-A PREROUTING -s 192.0.2.99/32 -j ACCEPT");
  await relay.logged("kube-proxy still runs");
  assertEquals(adviceIn(relay.log), [true, false]);
  await kubeProxy.kill();
  await relay.logged("kube-proxy has ended");
  const report = await client.stopLoad();
  assert(report.attempts > 20, JSON.stringify(report));
  assertEquals(report.failures, 0, JSON.stringify(report) + relay.log);
  await relay.stop();
  assert(await client.who(VIP, SILENCE_MS) !== "pod-a1", "without both there is no proxy");
});

test("takeover: leftovers of a dead kube-proxy are reported, and kept", async () => {
  await using stage = await KubeProxyScene.create();
  await stage.kubeProxy.kill();
  const before = await stage.rules();
  const relay = stage.scene.start();
  await relay.settled();
  await relay.logged("kube-proxy-leftovers-iptables");
  assertEquals(await stage.rules(), before);
  await relay.stop();
  assertStringIncludes(await stage.scene.cleanup(), "removed chain KUBE-SERVICES in nat");
  assertEquals((await stage.rules()).includes("KUBE-"), false);
});
