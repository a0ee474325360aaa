/**
 * The iptables mode in place of a kube-proxy, of another mode, and of itself: nobody who connects
 * notices. With `KUBE_RELAY_SABOTAGE=1` the rules are flushed in between, and the tests have to fail.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { ProbeClient } from "../support/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { IptablesScene } from "../support/iptables_scene.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  type IptablesVariant,
  leaveKubeletHint,
  restoreRules,
  ruleState,
  savedRules,
} from "../support/iptables_tools.ts";
import { kubeProxyIptablesRules, kubeProxyNftRules } from "../support/kube_proxy_rules.ts";
import { netnsRequirements } from "../support/netns.ts";
import { isMissing, program } from "../support/requirement.ts";
import { VIP, VIP_6, VIP_UDP } from "../support/web_service.ts";

const ignore = isMissing("taking over by iptables mode with real packets", [
  ...netnsRequirements(),
  ...IPTABLES_VARIANTS.flatMap(iptablesRequirements),
  program("nft"),
]);

const PREFIX = { IPv4: "iptables", IPv6: "ip6tables" } as const;
const FAMILIES = ["IPv4", "IPv6"] as const;
/** Of each of the two clients. */
const ATTEMPTS_PER_SECOND = 150;
/** A SYN that a full queue has dropped comes again after 1, 3, 7 and 15 s. */
const TIMEOUT_MS = 25_000;

/** Connections from a pod and from outside, while something is done; none may fail. */
async function assertNoFailureWhile(stage: IptablesScene, act: () => Promise<void>): Promise<void> {
  const { client, localPodClient } = stage.scene.cluster;
  const clients = [client, localPodClient].map((each) => ProbeClient.start(each));
  const targets = [VIP, VIP_6, VIP_UDP].map((target) => ({ ...target, expect: ["pod-a1"] }));
  const kept = ProbeClient.start(client);
  const connection = await kept.open(VIP);
  for (const each of clients) {
    await each.startLoad(targets, { perSecond: ATTEMPTS_PER_SECOND, timeoutMs: TIMEOUT_MS });
  }
  try {
    if (Deno.env.get("KUBE_RELAY_SABOTAGE") === "1") await stage.flush("nat");
    await act();
    assertEquals(await connection.who(), "pod-a1", "the open connection goes on");
  } finally {
    const reports = await Promise.all(clients.map((each) => each.stopLoad()));
    for (const report of reports) {
      assertEquals(report.failures, 0, report.examples.join("\n"));
      assert(report.attempts > 50, JSON.stringify(report));
    }
  }
}

/** kube-proxy's rules for Service `web`, among those of others; in one commit, as it does it. */
function iptablesModeRules(family: IpFamily): string {
  const { clusterIp, localPods: [pod] } = ADDRESSES[family];
  const at = family === "IPv4" ? `${pod}:8080` : `[${pod}]:8080`;
  const [svc, sep] = ["SVC", "SEP"].map((kind) => `KUBE-${kind}-WWWWWWWWWWWWWWWW`);
  const lines = [
    `:${svc} - [0:0]`,
    `:${sep} - [0:0]`,
    `-A ${svc} -j ${sep}`,
    ...["tcp", "udp"].flatMap((protocol) => {
      const match = `-p ${protocol} -m ${protocol}`;
      return [
        `-I KUBE-SERVICES -d ${clusterIp} ${match} --dport 80 -j ${svc}`,
        `-A ${sep} ${match} -j DNAT --to-destination ${at}`,
      ];
    }),
  ];
  const [rest, ...others] = kubeProxyIptablesRules({ family, services: 20 }).split("*nat\n");
  const [nat = "", ...after] = others.join("*nat\n").split("COMMIT\n");
  return `${rest}*nat\n${nat}${lines.join("\n")}\nCOMMIT\n${after.join("COMMIT\n")}`;
}

function nftablesModeRules(family: IpFamily): string {
  const { clusterIp, localPods: [pod] } = ADDRESSES[family];
  const [table, at] = family === "IPv4" ? ["ip", `${pod}:8080`] : ["ip6", `[${pod}]:8080`];
  const lines = ["tcp", "udp"].flatMap((protocol) => {
    const chain = `service-WWWWWWWW-ns1/web/${protocol}/`;
    return [
      `add chain ${table} kube-proxy ${chain}`,
      `add rule ${table} kube-proxy ${chain} meta l4proto ${protocol} dnat ${table} to ${at}`,
      `add element ${table} kube-proxy service-ips { ${clusterIp} . ${protocol} . 80 : goto ${chain} }`,
    ];
  });
  return [kubeProxyNftRules({ family }), ...lines, ""].join("\n");
}

/** Whether anything of {@linkcode iptablesModeRules} or {@linkcode nftablesModeRules} is left. */
async function hasKubeProxyRules({ node }: IptablesScene): Promise<boolean> {
  const texts = [await node.output("nft", ["list", "tables"])];
  for (const variant of IPTABLES_VARIANTS) texts.push(await savedRules(node, variant));
  return /KUBE-(SVC|SEP)-(W{16}|A{16})|kube-proxy$/m.test(texts.join("\n"));
}

async function loadNftables({ node }: IptablesScene, stdin: string): Promise<void> {
  const args = ["netns", "exec", node.name, "nft", "-f", "-"];
  const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
  assertEquals(code, 0, stderr);
}

/** The rules are those that a start on a node without any leads to. */
async function assertAsAfterFreshStart(
  stage: IptablesScene,
  variant: IptablesVariant,
): Promise<void> {
  const found = await ruleState(stage.node, variant);
  await stage.scene.cleanup();
  const fresh = stage.start();
  await fresh.settled();
  assertEquals(found, await ruleState(stage.node, variant));
  await fresh.stop();
}

for (
  const { what, before, after } of [
    { what: "iptables mode (nft)", before: "nft", after: "nft" },
    { what: "iptables mode (legacy)", before: "legacy", after: "legacy" },
    { what: "iptables mode (legacy), on a node that uses nft", before: "legacy", after: "nft" },
    { what: "nftables mode", before: "nftables", after: "nft" },
  ] as const
) {
  Deno.test({
    name: `takeover by iptables mode from a dead kube-proxy's ${what}: no connection fails`,
    ignore,
    async fn() {
      await using stage = await IptablesScene.create(after);
      await leaveKubeletHint(stage.node, after);
      for (const family of FAMILIES) {
        if (before === "nftables") await loadNftables(stage, nftablesModeRules(family));
        else {await restoreRules(
            stage.node,
            `${PREFIX[family]}-${before}`,
            iptablesModeRules(family),
          );}
      }
      await assertNoFailureWhile(stage, async () => {
        const relay = stage.start("--takeover");
        await relay.settled();
        await eventually("its rules are gone", async () => !await hasKubeProxyRules(stage), {
          deadlineMs: 30_000,
        });
        await eventually(
          "that is logged",
          () => relay.log.includes("Removed what kube-proxy left"),
        );
        await relay.stop();
      });
      await assertAsAfterFreshStart(stage, after);
    },
  });
}

Deno.test({
  name: "takeover by iptables mode from a kube-proxy that writes its rules again: no failure",
  ignore,
  async fn() {
    await using stage = await IptablesScene.create("nft");
    await leaveKubeletHint(stage.node, "nft");
    const write = async ({ jumps }: { readonly jumps: boolean }) => {
      for (const family of FAMILIES) {
        const rules = iptablesModeRules(family);
        // It sees that its jumps and canaries are there.
        const again = rules.replaceAll(/^(-I [A-Z]+ |:KUBE-PROXY-CANARY ).*\n/gm, "");
        await stage.restore(PREFIX[family], jumps ? rules : again);
      }
    };
    await write({ jumps: true });
    const program = new URL("../support/fake_kube_proxy.ts", import.meta.url);
    const kubeProxy = stage.node.startDeno(program, []);
    await kubeProxy.nextLine();
    await assertNoFailureWhile(stage, async () => {
      const relay = stage.start("--takeover");
      await relay.settled();
      await eventually("its rules are gone", async () => !await hasKubeProxyRules(stage), {
        deadlineMs: 30_000,
      });
      await write({ jumps: false });
      await kubeProxy.kill();
      await eventually("it is seen to have ended", () => relay.log.includes("has ended"), {
        deadlineMs: 20_000,
      });
      await eventually("its rules are gone", async () => !await hasKubeProxyRules(stage), {
        deadlineMs: 30_000,
      });
      await relay.stop();
    });
    await assertAsAfterFreshStart(stage, "nft");
  },
});

for (const variant of IPTABLES_VARIANTS) {
  Deno.test({
    name: `restart of iptables mode (${variant}), in order and by kill -9: no connection fails`,
    ignore,
    async fn() {
      await using stage = await IptablesScene.create(variant);
      const first = stage.start();
      await first.settled();
      const rules = await ruleState(stage.node, variant);
      await assertNoFailureWhile(stage, async () => {
        await first.stop();
        const second = stage.start();
        await second.settled();
        await second.kill();
        // Killed while it starts: before it has read the rules, with them, and in its first sync.
        for (const words of ["Starting", "Chose the variant", "Entered phase"]) {
          const next = stage.start();
          await eventually(words, () => next.log.includes(words));
          await next.kill();
        }
        const last = stage.start();
        await last.settled();
        assertEquals(await ruleState(stage.node, variant), rules);
        await last.stop();
      });
      assertEquals(await ruleState(stage.node, variant), rules);
    },
  });
}

Deno.test({
  name: "from iptables mode to userspace mode: no connection fails",
  ignore,
  async fn() {
    await using stage = await IptablesScene.create("nft");
    const before = await ruleState(stage.node, "nft");
    const first = stage.start();
    await first.settled();
    await assertNoFailureWhile(stage, async () => {
      await first.stop();
      const second = stage.scene.start(["--mode=userspace"]);
      await second.settled();
      await eventually(
        "the rules are gone",
        async () => JSON.stringify(await ruleState(stage.node, "nft")) === JSON.stringify(before),
      );
      assertStringIncludes(second.log, "Removed something of another mode");
    });
  },
});
