/**
 * Tests modes whose rules stay, in place of a kube-proxy, of another mode, and of themselves: no
 * client notices. With `KUBE_RELAY_SABOTAGE=1` connections are refused in between, and the tests
 * must fail.
 */
import { assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  type IptablesVariant,
  restoreRules,
  savedRules,
} from "../support/stages/iptables_tools.ts";
import { kubeProxyIptablesWeb, kubeProxyNftWeb } from "../support/builders/kube_proxy_web.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { program, testNeeding } from "../support/requirement.ts";
import {
  IPTABLES_MODES,
  NFTABLES_MODE,
  RULE_MODES,
  type RuleMode,
} from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { webServices, webSlices } from "../support/builders/web_service.ts";
import { LAYOUT_MARK } from "../../backends/nftables/chain_spec.ts";

const PORT = "meta l4proto \\. th dport";

/**
 * Replacements that turn a table into an older layout: affinity was kept by address and port, not
 * by ServicePort.
 */
const CLIENTS: readonly (readonly [RegExp, string])[] = [
  [
    /typeof meta priority \. ip saddr : meta priority/g,
    "typeof ip saddr . ip daddr . meta l4proto . th dport : meta priority",
  ],
  [
    new RegExp(
      `meta priority set 0x8000[08]000 meta priority set (?:ip6? daddr \\. )?${PORT} ` +
        String.raw`\. meta priority map @(?:node-port-)?choices `,
      "g",
    ),
    "",
  ],
  [/meta priority and 0xbfff8000 \. ip saddr/g, "ip saddr . ip daddr . meta l4proto . th dport"],
  [
    /typeof meta priority \. (numgen random mod 65536 \. numgen random mod 65536) : meta priority/g,
    "typeof $1 : meta priority",
  ],
  [/meta priority and 0xbfff8000 \. (?=jhash)/g, ""],
  [/jhash ip6 saddr mod/g, "jhash ip6 saddr . ip6 daddr . meta l4proto . th dport mod"],
];

/** The text of a current table in the layout whose mark was `layout-2`. */
function asLayout2(text: string): string {
  return CLIENTS.reduce(
    (old, [today, then]) => old.replaceAll(today, then),
    text.replaceAll(LAYOUT_MARK, "layout-2"),
  );
}

/** The same in the one before, `layout-1`. */
function asLayout1(text: string): string {
  return asLayout2(text).replaceAll("layout-2", "layout-1").replaceAll("numbered-chains", "chains");
}

const test = testNeeding("taking over with real packets", [
  ...netnsRequirements(),
  ...IPTABLES_VARIANTS.flatMap(iptablesRequirements),
  program("nft"),
]);

const PREFIX = { IPv4: "iptables", IPv6: "ip6tables" } as const;
const FAMILIES = ["IPv4", "IPv6"] as const;

/** The rules with which a kube-proxy forwards. */
type KubeProxyRules = IptablesVariant | "nftables";

/** Writes the rules of a kube-proxy. */
async function writeKubeProxyRules(node: Namespace, kind: KubeProxyRules): Promise<void> {
  for (const family of FAMILIES) {
    if (kind === "nftables") await loadNftables(node, kubeProxyNftWeb(family));
    else await restoreRules(node, `${PREFIX[family]}-${kind}`, kubeProxyIptablesWeb(family));
  }
}

/** Writes the part again that a kube-proxy writes when a Service changes. */
async function rewriteKubeProxyRules(node: Namespace, kind: KubeProxyRules): Promise<void> {
  if (kind === "nftables") return await writeKubeProxyRules(node, kind);
  for (const family of FAMILIES) {
    // It finds its jumps and canaries.
    const rules = kubeProxyIptablesWeb(family)
      .replaceAll(/^(-I [A-Z]+ |:KUBE-PROXY-CANARY ).*\n/gm, "");
    await restoreRules(node, `${PREFIX[family]}-${kind}`, rules);
  }
}

/** Whether anything of a kube-proxy is left. */
async function hasKubeProxyRules({ node }: RuleScene): Promise<boolean> {
  const texts = [await node.output("nft", ["list", "tables"])];
  for (const variant of IPTABLES_VARIANTS) texts.push(await savedRules(node, variant));
  return /KUBE-(SVC|SEP)-(W{16}|A{16})|kube-proxy$/m.test(texts.join("\n"));
}

async function rulesAreGone(stage: RuleScene): Promise<void> {
  await eventually("its rules are gone", async () => !await hasKubeProxyRules(stage));
}

const TAKEOVERS: readonly (readonly [mode: RuleMode, before: KubeProxyRules])[] = [
  [IPTABLES_MODES.nft, "nft"],
  [IPTABLES_MODES.legacy, "legacy"],
  [IPTABLES_MODES.nft, "legacy"],
  [IPTABLES_MODES.nft, "nftables"],
  [NFTABLES_MODE, "nftables"],
  [NFTABLES_MODE, "nft"],
  [NFTABLES_MODE, "legacy"],
];

for (const [mode, before] of TAKEOVERS) {
  const proxyMode = before === "nftables" ? "nftables mode" : `iptables mode (${before})`;
  test(`takeover by ${mode.name} from a dead kube-proxy's ${proxyMode}: no connection fails`, async () => {
    await using stage = await RuleScene.create(mode);
    await mode.prepare(stage.node);
    await writeKubeProxyRules(stage.node, before);
    await stage.assertNoFailureWhile(async () => {
      const relay = stage.start("--takeover");
      await relay.settled();
      await rulesAreGone(stage);
      await relay.logged("Removed leftovers of kube-proxy");
      await relay.stop();
    });
    await stage.assertAsAfterFreshStart();
  });
}

for (
  const [mode, before] of [[IPTABLES_MODES.nft, "nft"], [NFTABLES_MODE, "nftables"]] as const
) {
  test(`takeover by ${mode.name} from a kube-proxy that writes its rules again: no failure`, async () => {
    await using stage = await RuleScene.create(mode);
    await mode.prepare(stage.node);
    await writeKubeProxyRules(stage.node, before);
    const program = new URL("../support/fakes/fake_kube_proxy.ts", import.meta.url);
    const kubeProxy = stage.node.startDeno(program, [mode.mode]);
    await kubeProxy.nextLine();
    await stage.assertNoFailureWhile(async () => {
      const relay = stage.start("--takeover");
      await relay.settled();
      await rulesAreGone(stage);
      await rewriteKubeProxyRules(stage.node, before);
      await kubeProxy.kill();
      await relay.logged("has ended");
      await rulesAreGone(stage);
      await relay.stop();
    });
    await stage.assertAsAfterFreshStart();
  });
}

for (const mode of RULE_MODES) {
  test(`restart of ${mode.name}, in order and by kill -9: no connection fails`, async () => {
    await using stage = await RuleScene.create(mode);
    const first = stage.start();
    await first.settled();
    const rules = await stage.state();
    await stage.assertNoFailureWhile(async () => {
      await first.stop();
      const second = stage.start();
      await second.settled();
      await second.kill();
      for (const words of mode.startWords) {
        const next = stage.start();
        await next.logged(words);
        await next.kill();
      }
      const last = stage.start();
      await last.settled();
      assertEquals(await stage.state(), rules);
      await last.stop();
    });
    assertEquals(await stage.state(), rules);
  });
}

for (const [mark, asLayout] of [["layout-1", asLayout1], ["layout-2", asLayout2]] as const) {
  test(`nftables mode in place of its ${mark}: no connection fails`, async () => {
    await using stage = await RuleScene.create(NFTABLES_MODE);
    await stage.scene.write(webServices({ sessionAffinity: "ClientIP" }), webSlices("a1"));
    for (const family of FAMILIES) {
      await loadNftables(stage.node, asLayout(await stage.render(family)));
    }
    await stage.assertNoFailureWhile(async () => {
      const relay = stage.start();
      await relay.settled();
      await relay.stop();
    });
    assertEquals((await stage.node.output("nft", ["list", "chains"])).includes(mark), false);
    await stage.assertAsAfterFreshStart();
  });
}

test("from iptables mode to userspace mode: no connection fails", async () => {
  await using stage = await RuleScene.create(IPTABLES_MODES.nft);
  const before = JSON.stringify(await stage.state());
  const first = stage.start();
  await first.settled();
  await stage.assertNoFailureWhile(async () => {
    await first.stop();
    const second = stage.scene.start(["--mode=userspace"]);
    await second.settled();
    await eventually(
      "the rules are gone",
      async () => JSON.stringify(await stage.state()) === before,
    );
    await second.logged("Removed objects of another mode");
  });
});

for (const variant of IPTABLES_VARIANTS) {
  test(`from iptables mode (${variant}) to nftables mode and back: no connection fails`, async () => {
    await using stage = await RuleScene.create(IPTABLES_MODES[variant]);
    const empty = JSON.stringify(await stage.state());
    let relay: RelayProcess = stage.start();
    await relay.settled();
    const rules = await stage.state();
    await stage.assertNoFailureWhile(async () => {
      await relay.stop();
      relay = stage.scene.start([...NFTABLES_MODE.args]);
      await relay.settled();
      await eventually(
        "the rules are gone",
        async () => JSON.stringify(await stage.state()) === empty,
      );
      await relay.stop();
      relay = stage.start();
      await relay.settled();
      await eventually(
        "the tables are gone",
        async () => !/kube-relay/.test(await stage.node.output("nft", ["list", "tables"])),
      );
    });
    assertEquals(await stage.state(), rules);
    await relay.stop();
  });
}
