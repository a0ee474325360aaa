/**
 * Tests a start next to a live kube-proxy, and in its place, with real packets.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { AnswerGap } from "../support/drivers/answer_gaps.ts";
import { DEADLINE_FACTOR } from "../support/deadline_factor.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program } from "../support/requirement.ts";
import { NODE_PORT, VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";

const ignore = isMissing("takeover with real packets", [
  ...netnsRequirements(),
  program("iptables-nft"),
]);

const { clusterIp, localPods: [pod] } = ADDRESSES.IPv4;

/** The ports are tried every 100 ms. Without a handover: every 5 s. */
const ANSWER_DEADLINE_MS = 2_000 * DEADLINE_FACTOR;

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
  readonly scene: RelayScene;
  readonly kubeProxy: LineProcess;

  private constructor(scene: RelayScene, kubeProxy: LineProcess) {
    this.scene = scene;
    this.kubeProxy = kubeProxy;
  }

  static async create(
    { healthCheckNodePorts = [], spec }: {
      readonly healthCheckNodePorts?: readonly number[];
      readonly spec?: Parameters<typeof webServices>[0];
    } = {},
  ): Promise<KubeProxyScene> {
    const scene = await RelayScene.create();
    const { node } = scene.cluster;
    await scene.write(webServices(spec), webSlices("a1"));
    const { code, stderr } = await systemCommandRunner.run(
      "ip",
      ["netns", "exec", node.name, "iptables-nft-restore", "--noflush"],
      { stdin: RULES },
    );
    assertEquals(code, 0, stderr);
    const kubeProxy = node.startDeno(
      new URL("../support/fakes/fake_kube_proxy.ts", import.meta.url),
      ["iptables", ...healthCheckNodePorts.map(String)],
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

Deno.test({
  name: "takeover: next to a live kube-proxy, kube-relay does not start, and changes nothing",
  ignore,
  async fn() {
    await using stage = await KubeProxyScene.create();
    const before = await stage.state();
    const relay = stage.scene.start();
    assertEquals(await relay.ended(), 1);
    for (
      const words of ["Cannot start: ", "127.0.0.1:10249/proxyMode says iptables", "--takeover"]
    ) {
      assertStringIncludes(relay.log, words);
    }
    assertEquals(await stage.state(), before);
  },
});

Deno.test({
  name: "a plain user whose program answers like kube-proxy does not prevent a start of kube-relay",
  ignore: isMissing("an answer like kube-proxy's", [
    ...netnsRequirements(),
    ...["setpriv", "socat"].map(program),
  ]),
  async fn() {
    await using scene = await RelayScene.create();
    const { node } = scene.cluster;
    await scene.write(webServices(), webSlices("a1"));
    const answer = "printf 'HTTP/1.0 200 OK\\r\\n\\r\\niptables'";
    for (const listen of ["TCP4-LISTEN:10249,bind=127.0.0.1", "TCP6-LISTEN:10249,bind=[::1]"]) {
      node.start("setpriv", [
        ...["--reuid=65534", "--regid=65534", "--clear-groups"],
        ...["socat", `${listen},fork,reuseaddr`, `SYSTEM:"${answer}"`],
      ]);
    }
    await eventually("both listen", async () => {
      const sockets = await node.output("ss", ["-Hltn", "sport = :10249"]);
      return sockets.split("\n").length > 2;
    });
    const relay = scene.start();
    await relay.settled();
    await relay.logged("says iptables, from a program of user 65534");
    await relay.stop();
  },
});

Deno.test({
  name: "takeover: --dry-run shows the removals, and changes nothing",
  ignore,
  async fn() {
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
    assertEquals(await stage.state(), before);
  },
});

Deno.test({
  name: "takeover: no connection fails while kube-relay starts and kube-proxy stops",
  ignore,
  async fn() {
    await using stage = await KubeProxyScene.create();
    const { scene, kubeProxy } = stage;
    const client = ProbeClient.start(scene.cluster.client);
    assertEquals(await client.who(VIP), "pod-a1", "kube-proxy's rules serve");
    await client.startLoad([{ ...VIP, expect: ["pod-a1"] }], { perSecond: 150 });
    const relay = scene.start(["--takeover"]);
    await relay.settled();
    await eventually("its rules are gone", async () => !(await stage.rules()).includes("KUBE-"));
    assertStringIncludes(await stage.rules(), "-A PREROUTING -s 192.0.2.99/32 -j ACCEPT");
    await kubeProxy.kill();
    await relay.logged("kube-proxy has ended");
    const report = await client.stopLoad();
    assert(report.attempts > 20, JSON.stringify(report));
    assertEquals(report.failures, 0, JSON.stringify(report) + relay.log);
    await relay.stop();
    assert(await client.who(VIP, SILENCE_MS) !== "pod-a1", "without both there is no proxy");
  },
});

Deno.test({
  name:
    "takeover: the ports of kube-proxy answer soon after it has stopped, and waiting is no error",
  ignore,
  async fn() {
    const healthCheckNodePort = 30101;
    await using stage = await KubeProxyScene.create({
      healthCheckNodePorts: [healthCheckNodePort],
      spec: {
        type: "LoadBalancer",
        externalTrafficPolicy: "Local",
        healthCheckNodePort,
        ports: [{ name: "tcp", protocol: "TCP", port: 80, nodePort: NODE_PORT }],
      },
    });
    const { scene, kubeProxy } = stage;
    const relay = scene.start(["--takeover", "--bind-address-hard-fail"]);
    await relay.settled();
    const urls = [
      "http://127.0.0.1:10256/healthz",
      "http://127.0.0.1:10249/metrics",
      `http://127.0.0.1:${healthCheckNodePort}/`,
    ];
    const asking = scene.cluster.node.startDeno(
      new URL("../support/drivers/answer_gaps.ts", import.meta.url),
      urls,
    );
    assertEquals(await asking.nextLine(), "asking");
    await kubeProxy.kill();
    for (const url of urls) {
      const gap: AnswerGap = JSON.parse(await asking.nextLine());
      // deno-lint-ignore no-console -- the figure of this machine
      console.log(`${gap.url} had no answer for ${gap.gapMs} ms`);
      assertEquals([gap.url, gap.status], [url, 200]);
      assert(gap.gapMs < ANSWER_DEADLINE_MS, `${gap.gapMs} ms for ${url}`);
    }
    await relay.logged("kube-proxy has ended");
    const lines = relay.log.split("\n");
    assertEquals(lines.filter((line) => / ERROR /.test(line)), []);
    assertEquals(
      lines.filter((line) => line.includes("Waiting ")).length,
      urls.length,
      relay.log,
    );
    await relay.stop();
  },
});

Deno.test({
  name: "takeover: leftovers of a dead kube-proxy are reported, and kept",
  ignore,
  async fn() {
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
  },
});
