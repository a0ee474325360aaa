/** Tests that the whole program takes up changed BGP settings, with a real BIRD and real peers. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { frrConfiguration, gobgpConfiguration } from "../support/stages/bgp_routers.ts";
import { bgpRequirements, BgpStage, type BirdNode } from "../support/stages/bgp_stage.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { rawLoadBalancer, rawNode } from "../support/stages/routing_relay.ts";

const ignore = isMissing("a changed configuration of BGP", [...bgpRequirements(), program("nft")]);

const GOBGP = gobgpConfiguration({ as: 64514, id: "192.0.2.3" });
const [WEB, SHOP] = ["203.0.113.10/32", "203.0.113.20/32"] as const;
const OFFERED = "198.51.100.0/24";
const SPINE = "{name: spine, address: 192.0.2.3, as: 64514}";

/** The line of a session, whose time is that of its last change of state. */
async function sessionLine(node: BirdNode, peer: string): Promise<string> {
  const lines = (await node.birdc("show protocols")).split("\n");
  return lines.find((line) => line.startsWith(`peer_${peer} `)) ?? `no peer_${peer}`;
}

Deno.test({
  name: "peers, pools and passwords change while kube-relay runs, and other sessions stay up",
  ignore,
  async fn(t) {
    await using stage = await BgpStage.create(3);
    const [node, frr, gobgp] = [stage.node(1), stage.frr(2), stage.gobgp(3)];
    await gobgp.start(GOBGP);
    const networks = [OFFERED, "0.0.0.0/0", "203.0.113.10/32"];
    await frr.start(frrConfiguration({ neighbor: ["password right"], networks }));
    const folder = `${stage.folder}/relay`;
    await Deno.mkdir(folder);
    const api = await ApiProcess.start(node.namespace, `${folder}/kubeconfig`);
    await api.write([
      rawNode("node-a", "192.0.2.1"),
      ...rawLoadBalancer("web", { clusterIP: "172.30.0.41", nodes: ["node-a"] }),
      ...rawLoadBalancer("shop", { clusterIP: "172.30.0.42", nodes: ["node-a"] }),
    ]);
    const config = `${folder}/config.yaml`;
    const write = (pools: string, bgp: string) =>
      Deno.writeTextFile(
        config,
        [
          "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
          "kind: KubeProxyConfiguration",
          "mode: nftables",
          "hostnameOverride: node-a",
          `clientConnection: {kubeconfig: ${api.kubeconfig}}`,
          "conntrack: {maxPerCore: 0}",
          `routing: {enabled: true, announce: bgp, pools: [${pools}], bgp: {enabled: true,`,
          `  configFile: ${node.paths.file}, controlSocket: ${node.paths.socket}, ${bgp}}}`,
          "",
        ].join("\n"),
      );
    await write("203.0.113.10", `peers: [${SPINE}]`);
    await using relay = RelayProcess.start(node.namespace, {
      folder,
      args: [`--config=${config}`],
    });
    await relay.logged("BIRD does not listen on");
    await node.startBird();
    await eventually("the router has it", () => gobgp.has(WEB)).catch((cause) => {
      throw new Error(relay.log, { cause });
    });
    const before = await sessionLine(node, "spine");
    assertStringIncludes(before, "Established");
    const passwordFile = `${folder}/password`;
    await Deno.writeTextFile(passwordFile, "wrong\n");
    const tor = `{name: tor, address: 192.0.2.2, as: 64513, passwordFile: ${passwordFile}}`;

    await t.step("a pool and a peer are added", async () => {
      await write("203.0.113.10, more=203.0.113.20", `peers: [${SPINE}, ${tor}]`);
      await eventually("the router has the new address", () => gobgp.has(SHOP)).catch((cause) => {
        throw new Error(relay.log, { cause });
      });
      await eventually(
        "BIRD has the new peer",
        async () => !(await sessionLine(node, "tor")).startsWith("no"),
      );
      await relay.until(
        "the status names the likely cause",
        ({ controllers }) => JSON.stringify(controllers).includes("the passwords may differ"),
      );
    });
    await t.step("the password is corrected in its file", async () => {
      await Deno.writeTextFile(passwordFile, "right\n");
      await eventually(
        "the session",
        async () => (await sessionLine(node, "tor")).includes("Established"),
        { deadlineMs: 60_000 },
      );
      await eventually("the new router has both", async () => {
        const found = await Promise.all([WEB, SHOP].map((prefix) => frr.paths(prefix)));
        return found.every((paths) => paths.length > 0);
      });
    });
    await t.step("a prefix of the new peer is admitted", async () => {
      const learned = async () => (await node.routes()).filter((line) => line.includes("bird"));
      assertEquals(await learned(), [], "nothing is accepted by default");
      const importing = tor.replace("}", `, import: {prefixes: [${OFFERED}, 203.0.113.0/24]}}`);
      await write("203.0.113.10, more=203.0.113.20", `peers: [${SPINE}, ${importing}]`);
      const route = `${OFFERED} via 192.0.2.2 dev eth0 proto bird metric 512`;
      await eventually("the route", async () => `${await learned()}` === route).catch((cause) => {
        throw new Error(relay.log, { cause });
      });
      const { controllers } = await relay.status();
      assertStringIncludes(JSON.stringify(controllers), `accepts ${OFFERED}, 203.0.113.0/24`);
    });
    await t.step("an invalid block is refused", async () => {
      await write("203.0.113.10", `peers: [${SPINE}, {address: 192.0.2.300, as: 1}]`);
      await relay.logged("routing.bgp.peers.1.address");
      await relay.logged("found '192.0.2.300'");
      assert(await gobgp.has(SHOP));
      assertStringIncludes(await sessionLine(node, "tor"), "Established");
    });
    await t.step("a peer and a pool are removed", async () => {
      await write("203.0.113.10", `peers: [${SPINE}]`);
      await eventually(
        "BIRD does not have the peer",
        async () => (await sessionLine(node, "tor")) === "no peer_tor",
      );
      await relay.until(
        "the status names the address without a pool",
        (status) => JSON.stringify(status.controllers).includes("its range was removed"),
      );
      assert(await gobgp.has(SHOP), "an address in no pool stays announced");
    });
    assertEquals(await sessionLine(node, "spine"), before, "the other session was not touched");
    await t.step("the cleanup withdraws everything", async () => {
      await relay.stop();
      await RelayProcess.run(node.namespace, { folder, args: [`--config=${config}`, "--cleanup"] });
      await eventually("it is withdrawn", async () => !await gobgp.has(WEB));
    });
  },
});
