/** A BGP peer that breaks the protocol, next to one that does not. */
import { assert, assertEquals } from "@std/assert";
import { announced, bgpPeer, bgpPlan } from "../support/builders/bgp_plans.ts";
import { isMissing } from "../support/requirement.ts";
import { frrConfiguration } from "../support/stages/bgp_routers.ts";
import {
  bgpRequirements,
  BgpStage,
  established,
  sessionOf,
  startWith,
} from "../support/stages/bgp_stage.ts";

/** Kinds of garbage, each of another peer. */
const KINDS = 9;

Deno.test({
  name: "BGP peers that send garbage disturb no other session, and their words reach no terminal",
  ignore: isMissing("BGP by BIRD", bgpRequirements()),
  fn: async () => {
    await using stage = await BgpStage.create(3);
    const [node, frr] = [stage.node(1), stage.frr(2)];
    await frr.start(frrConfiguration());
    const addresses = Array.from({ length: KINDS }, (_, index) => `192.0.2.${11 + index}`);
    await stage.machine(3).ipBatch(addresses.map((each) => `addr add ${each}/24 dev eth0`));
    const file = new URL("../support/drivers/garbage_bgp_peer.ts", import.meta.url);
    const garbage = stage.machine(3).startDeno(file, addresses);
    await garbage.nextLine();
    const plan = bgpPlan({
      peers: [
        bgpPeer("frr", "192.0.2.2"),
        ...addresses.map((address, index) => bgpPeer(`garbage_${index}`, address)),
      ],
      announced: [announced("203.0.113.10/32")],
    });
    const dataPlane = await startWith(node, plan);
    assertEquals((await dataPlane.sync(plan)).quarantined, []);
    await established(dataPlane, plan, "frr");
    const { since } = await sessionOf(dataPlane, plan, "frr");
    const sent = new Set<string>();
    while (sent.size < KINDS) {
      sent.add(await garbage.nextLine());
      const sessions = await dataPlane.sessions(plan);
      for (const { peer, state, description, imported, exported } of sessions) {
        // deno-lint-ignore no-control-regex
        assert(!/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/.test(description), description);
        if (peer === "frr") assertEquals([state, exported], ["Established", 1], `${[...sent]}`);
        else assertEquals(imported, 0, peer);
      }
    }
    assertEquals((await sessionOf(dataPlane, plan, "frr")).since, since, "it is the same session");
    assertEquals((await frr.paths("203.0.113.10/32")).length, 1);
    await garbage.kill();
  },
});
