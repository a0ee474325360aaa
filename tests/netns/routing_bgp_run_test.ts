/** Tests BGP by the whole program, with a real BIRD and a real peer. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { gobgpConfiguration } from "../support/stages/bgp_routers.ts";
import { bgpRequirements, BgpStage } from "../support/stages/bgp_stage.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { rawLoadBalancer, rawNode, rawSlice } from "../support/stages/routing_relay.ts";

const ignore = isMissing("BGP by the whole program", [...bgpRequirements(), program("nft")]);

const GOBGP = gobgpConfiguration({ as: 64513, id: "192.0.2.2" });
const VIP = "203.0.113.10";
/** What other programs delay is not measured. */
const ATTEMPTS = 3;

Deno.test({
  name: "BGP announces the address of a Service to a router, also while kube-relay restarts",
  ignore,
  async fn(t) {
    await using stage = await BgpStage.create(2);
    const [node, gobgp] = [stage.node(1), stage.gobgp(2)];
    await gobgp.start(GOBGP);
    const folder = `${stage.folder}/relay`;
    await Deno.mkdir(folder);
    const api = await ApiProcess.start(node.namespace, `${folder}/kubeconfig`);
    await api.write([
      rawNode("node-a", "192.0.2.1"),
      ...rawLoadBalancer("web", {
        ...{ clusterIP: "172.30.0.41", nodes: ["node-a"], externalTrafficPolicy: "Local" },
      }),
    ]);
    const args = [
      ...["--routing", `--load-balancer-pools=${VIP}`, "--load-balancer-announce=bgp", "--bgp"],
      ...[`--bgp-config-file=${node.paths.file}`, `--bgp-control-socket=${node.paths.socket}`],
      ...["--bgp-peers=64513@192.0.2.2", `--kubeconfig=${api.kubeconfig}`, "--mode=nftables"],
      ...["--hostname-override=node-a", "--conntrack-max-per-core=0"],
    ];
    const start = () => RelayProcess.start(node.namespace, { folder, args });
    const relay = start();
    await t.step("BIRD starts later, and is given its configuration", async () => {
      await relay.until(
        "BIRD is missed",
        ({ controllers }) => JSON.stringify(controllers).includes("BIRD does not listen on"),
      );
      await node.startBird();
      await eventually("the router has it", () => gobgp.has(`${VIP}/32`)).catch((cause) => {
        throw new Error(relay.log, { cause });
      });
      const { controllers } = await relay.until(
        "it is out of quarantine",
        ({ controllers }) =>
          controllers![0]!.families.every(({ quarantined }) => quarantined.length === 0),
      );
      assertStringIncludes(JSON.stringify(controllers![0]!.facts), "Established".toLowerCase());
    });
    await t.step("the last local endpoint goes, and comes back", async () => {
      const figures: number[] = [];
      do {
        const at = performance.now();
        await api.write([rawSlice("web", ["node-b"])]);
        await eventually("it is withdrawn", async () => !await gobgp.has(`${VIP}/32`));
        figures.push(Math.round(performance.now() - at));
        await api.write([rawSlice("web", ["node-a"])]);
        await eventually("the router has it", () => gobgp.has(`${VIP}/32`));
      } while (figures.at(-1)! >= 3_000 && figures.length < ATTEMPTS);
      // deno-lint-ignore no-console -- a figure for people
      console.log(`withdrawn after ${figures.join(", ")} ms`);
      assert(figures.at(-1)! < 3_000, `${figures} ms`);
    });
    await t.step("kube-relay restarts", async () => {
      let isWatching = true;
      let missing = 0;
      const watching = (async () => {
        while (isWatching) if (!await gobgp.has(`${VIP}/32`)) missing++;
      })();
      await relay.stop();
      await using again = start();
      await again.until(
        "it has synced",
        ({ controllers }) => controllers?.[0]?.families.every(({ lastSync }) => lastSync) === true,
      );
      isWatching = false;
      await watching;
      assertEquals(missing, 0, "the router always had it");
    });
    await t.step("the cleanup", async () => {
      await RelayProcess.run(node.namespace, { folder, args: [...args.slice(0, 6), "--cleanup"] });
      await eventually("it is withdrawn", async () => !await gobgp.has(`${VIP}/32`));
    });
  },
});
