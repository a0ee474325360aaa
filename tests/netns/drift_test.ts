/**
 * Tests that a rule of another program is removed again and again, after a restart too. That a mode
 * takes no own write for one is held by `churn_test.ts` and `compare_test.ts`.
 *
 * @module
 */
import { isMissing } from "../support/requirement.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { NFTABLES_MODE } from "../support/stages/rule_modes.ts";
import { eventually } from "../support/eventually.ts";
import { webServices, webSlices } from "../support/builders/web_service.ts";

// Iptables mode compares rules by their meaning, every five minutes.
Deno.test({
  name: "restart: a rule that another program adds before and after it is removed in nftables mode",
  ignore: isMissing("another program in nftables mode", NFTABLES_MODE.requirements()),
  async fn() {
    await using scene = await RelayScene.create();
    const { node } = scene.cluster;
    const chain = ["ip", "kube-relay", "services"];
    const drop = "ip saddr 192.0.2.77 drop";
    const add = () => node.output("nft", ["add", "rule", ...chain, ...drop.split(" ")]);
    await scene.write(webServices(), webSlices("a1"));
    const before = scene.start(NFTABLES_MODE.args);
    await before.settled();
    await before.stop();
    await add();
    await using relay = scene.start(NFTABLES_MODE.args);
    await relay.settled();
    for (const time of ["first", "second", "third"]) {
      await add();
      await eventually(
        `the rule is gone for the ${time} time`,
        async () => !(await node.output("nft", ["list", "chain", ...chain])).includes(drop),
      );
    }
    await relay.logged("Another program removed or changed rules; repairing");
  },
});
