/**
 * Tests the ipvs mode in place of a kube-proxy's, of itself, and of the iptables mode: no client
 * notices.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { virtualServers } from "../support/stages/ipvs_state.ts";
import { leaveKubeProxyIpvs } from "../support/builders/kube_proxy_ipvs_web.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { isMissing } from "../support/requirement.ts";
import { IPTABLES_MODES } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("handover to and from ipvs mode with real packets", [
  GUEST,
  ...IPVS_MODE.requirements(),
]);

/** A foreign virtual server, such as one of keepalived. */
const FOREIGN = ["-A", "-t", "198.51.100.7:80", "-s", "wlc"];

Deno.test({
  name: "takeover by ipvs mode from a dead kube-proxy's, restarts and kill -9: no connection fails",
  ignore,
  async fn(t) {
    await using stage = await RuleScene.create(IPVS_MODE);
    const { node } = stage;
    await leaveKubeProxyIpvs(node);
    await node.output("ipvsadm", FOREIGN);
    const servers = () => virtualServers((program, args) => node.output(program, args));
    const device = await node.ip("-o link show kube-ipvs0");
    const leftovers = await servers();
    assert(leftovers.some((line) => line.includes("172.30.0.250")));

    await t.step("takeover", async () => {
      await stage.assertNoFailureWhile(async () => {
        const relay = stage.start("--takeover");
        await relay.settled();
        await eventually(
          "what they left is gone",
          async () => !/KUBE-IPVS-OUT-FILTER/.test(await node.output("iptables-save", [])),
        );
        await relay.stop();
      });
      assertEquals(await node.ip("-o link show kube-ipvs0"), device, "the device is the same");
      // The rules of kube-proxy are those of Service `web` here, except for that of a deleted
      // Service.
      const kept = leftovers.filter((line) => !/:?250\]?:80/.test(line));
      assertEquals(await servers(), kept);
      await stage.assertAsAfterFreshStart();
    });

    await t.step("restart in order, and after kill -9 at each step of a start", async () => {
      const state = await stage.state();
      await stage.assertNoFailureWhile(async () => {
        for (const words of IPVS_MODE.startWords) {
          const relay = stage.start();
          await relay.logged(words);
          await relay.kill();
        }
        const relay = stage.start();
        await relay.settled();
        assertEquals(await stage.state(), state);
        await relay.stop();
      });
      assert((await servers()).includes(FOREIGN.join(" ")), "a foreign virtual server stays");
    });
  },
});

/**
 * Without the kubelet's chain, which contains a rule of iptables mode: once ipvs mode has written
 * the shared chains, the owner of that rule is unknown.
 */
function withoutKubelet(state: unknown): string {
  return String(state).replaceAll(/^.*KUBE-FIREWALL.*\n/gm, "");
}

Deno.test({
  name: "from ipvs mode to iptables mode (legacy) and back: no new connection fails",
  ignore,
  async fn(t) {
    await using stage = await RuleScene.create(IPVS_MODE);
    const { node } = stage;
    let relay: RelayProcess = stage.start();
    await relay.settled();
    const before = await stage.state();
    await t.step("to iptables mode", async () => {
      await stage.assertNoFailureWhile(
        async () => {
          await relay.stop();
          relay = stage.scene.start([...IPTABLES_MODES.legacy.args]);
          await relay.settled();
          await eventually(
            "the sets are gone",
            async () => !/KUBE-/.test(await node.output("ipset", ["list", "-n"])),
          );
          assertEquals((await node.output("ipvsadm", ["-S", "-n"])).trim(), "");
        },
        // IPVS has a table of connections of its own, which ends with its virtual servers.
        { keepsOpen: false },
      );
    });
    await t.step("and back, which keeps even open connections", async () => {
      await stage.assertNoFailureWhile(async () => {
        await relay.stop();
        relay = stage.start();
        await relay.settled();
        // The differences are checked below.
        await eventually(
          "what iptables mode had is gone",
          async () => withoutKubelet(await stage.state()) === withoutKubelet(before),
          { deadlineMs: 6_000 },
        ).catch(() => {});
      });
      assertEquals(withoutKubelet(await stage.state()), withoutKubelet(before));
    });
    await relay.stop();
  },
});
