/** The iptables mode as a process, with real rules and real packets, in both variants. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { IptablesScene } from "../support/stages/iptables_scene.ts";
import { IPTABLES_VARIANTS, iptablesRequirements } from "../support/stages/iptables_tools.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { testNeeding } from "../support/requirement.ts";
import { VIP } from "../support/builders/web_service.ts";

const test = testNeeding("iptables mode with real packets", [
  ...netnsRequirements(),
  ...IPTABLES_VARIANTS.flatMap(iptablesRequirements),
]);

/** The rules of a kubelet. An old one has a rule in its chain that no other program knows. */
const KUBELET = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-I INPUT -j KUBE-FIREWALL
-I OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
`;

for (const variant of IPTABLES_VARIANTS) {
  test(`iptables mode (${variant}) serves beside a kubelet's rules, restarts without a write, and cleans up`, async () => {
    await using stage = await IptablesScene.create(variant);
    await stage.restore("iptables", KUBELET);
    const before = await stage.rules();
    const client = ProbeClient.start(stage.scene.cluster.client);
    const first = stage.start();
    const { families } = await first.settled();
    assertEquals(families.map(({ mode }) => mode), ["iptables", "iptables"]);
    assertEquals(await client.who(VIP), "pod-a1");
    const served = await stage.rules();
    for (const line of before.split("\n")) assertStringIncludes(served, line);
    await first.stop();
    assertEquals(await client.who(VIP), "pod-a1", "rules stay");

    await stage.scene.cleanup();
    assertEquals(await stage.rules(), before);
    assert(await client.who(VIP, SILENCE_MS) !== "pod-a1");
  });
}
