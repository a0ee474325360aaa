/**
 * Tests that a mode reports no drift for its own writes, whatever came before.
 *
 * @module
 */
import { Namespace } from "../support/stages/netns.ts";
import { isMissing } from "../support/requirement.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { NFTABLES_MODE, RULE_MODES } from "../support/stages/rule_modes.ts";
import { runOtherSettings, runVerifiedChurn } from "../support/stages/verified_churn.ts";
import { eventually } from "../support/eventually.ts";
import { webServices, webSlices } from "../support/builders/web_service.ts";

for (const mode of RULE_MODES) {
  Deno.test({
    name: `restart: other settings are no change of another program in ${mode.name}`,
    ignore: isMissing(`restarts with other settings in ${mode.name}`, mode.requirements()),
    async fn() {
      await using node = await Namespace.create("settings");
      await mode.prepare(node);
      await runOtherSettings(node, mode);
    },
  });
}

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

for (const mode of RULE_MODES) {
  Deno.test({
    name: `churn: no comparison after a sync finds a difference in ${mode.name}`,
    ignore: isMissing(`comparisons under churn in ${mode.name}`, mode.requirements()),
    async fn() {
      await using node = await Namespace.create("drift");
      await mode.prepare(node);
      await runVerifiedChurn(node, mode);
    },
  });
}
