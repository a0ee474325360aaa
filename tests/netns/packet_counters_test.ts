/**
 * Tests the two packet counters of iptables mode: their values, and that no Service depends on
 * them.
 */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { sendInvalidPacket } from "../support/builders/invalid_packet.ts";
import { IptablesScene } from "../support/stages/iptables_scene.ts";
import {
  IPTABLES_PREFIXES,
  IPTABLES_VARIANTS,
  iptablesRequirements,
} from "../support/stages/iptables_tools.ts";
import { kubeProxyIptablesWeb } from "../support/builders/kube_proxy_web.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { servicesOf } from "../support/stages/relay_process.ts";
import { program, testNeeding } from "../support/requirement.ts";
import {
  NODE_PORT,
  ON_NODE_PORTS,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const { IPv4 } = ADDRESSES;
const ON_NODE = { protocol: "TCP", address: IPv4.node, port: NODE_PORT } as const;
const ON_LOCALHOST = { ...ON_NODE, address: IPv4.loopback };
const ON_LOCALHOST_UDP = { ...ON_LOCALHOST, protocol: "UDP" } as const;
const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";
/** A counter of another program. */
const FOREIGN_COUNTER = "billing";

for (const variant of IPTABLES_VARIANTS) {
  const test = testNeeding(`packet counters of iptables mode (${variant})`, [
    ...netnsRequirements(),
    ...iptablesRequirements(variant),
    ...["bash", "nfacct", "socat"].map(program),
  ]);

  test(`iptables mode (${variant}) counts packets as kube-proxy does, over restarts`, async () => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
    const client = ProbeClient.start(node);
    const first = stage.start();
    await first.settled();
    assertEquals(await counted(node), { invalid: 0, localhost: 0 });
    assertEquals(await client.who(ON_LOCALHOST), "pod-a1");
    assertEquals(await client.who(ON_NODE), "pod-a1");
    assertEquals((await counted(node)).localhost, 1, "only connections to 127.0.0.0/8 count");
    for (const family of IP_FAMILIES) await sendInvalidPacket(scene.cluster, family);
    await eventually("invalid packets of both families count", async () => {
      return (await counted(node)).invalid === 2;
    });
    await first.stop();
    const second = stage.start();
    await second.settled();
    assertEquals(await client.who(ON_LOCALHOST_UDP), "pod-a1");
    assertEquals(await counted(node), { invalid: 2, localhost: 2 }, "a restart continues");
    await second.stop();
  });

  test(`iptables mode (${variant}) neither serves nor counts node ports on localhost if configured so`, async () => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
    const client = ProbeClient.start(node);
    const relay = stage.start("--iptables-localhost-nodeports=false");
    await relay.settled();
    assertEquals(await client.who(ON_LOCALHOST), "refused");
    assertEquals(await client.who(ON_NODE), "pod-a1");
    assertEquals(await counted(node), { invalid: 0, localhost: 0 });
    assertEquals((await node.output("sysctl", ["-n", ROUTE_LOCALNET])).trim(), "0");
    await relay.stop();
  });

  test(`iptables mode (${variant}) creates counters again that another program deletes`, async () => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    const client = ProbeClient.start(node);
    const relay = stage.start();
    await relay.settled();
    // The kernel keeps a counter that a rule refers to. Without node ports, no rule does.
    await node.output("nfacct", ["flush"]);
    await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
    await eventually("the node port is served", async () => {
      return await client.who(ON_NODE) === "pod-a1";
    });
    const services = servicesOf(await relay.settled());
    assertEquals(services.filter(({ quarantined }) => quarantined), [], "none had to wait");
    assertEquals(await client.who(ON_LOCALHOST), "pod-a1");
    assertEquals((await counted(node)).localhost, 1);
    await relay.logged("Another program deleted the packet counters");
    await flushAll(stage);
    await eventually("the rules are repaired", async () => {
      return await client.who(ON_LOCALHOST) === "pod-a1";
    });
    await eventually(
      "the counters count",
      async () => Number((await counted(node)).localhost) >= 1,
    );
    await relay.stop();
  });

  test(`iptables mode (${variant}) serves everything if nfacct does not work`, async (t) => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
    const client = ProbeClient.start(node);
    // Counters may be left over of a kube-proxy, which needs no tool.
    for (const leftOver of [false, true]) {
      if (leftOver) { for (const name of COUNTERS) await node.output("nfacct", ["add", name]); }
      for (const [what, script] of Object.entries(BROKEN_TOOLS)) {
        await t.step(`${what}, ${leftOver ? "with" : "without"} counters`, async () => {
          const by = await insteadOfNfacct(scene.folder, script);
          const args = ["--mode=iptables", "--iptables-sync-period=1s"];
          const relay = scene.start(args, { by });
          const services = servicesOf(await relay.settled());
          assertEquals(services.filter(({ quarantined }) => quarantined), []);
          assertEquals(await client.who(ON_LOCALHOST), "pod-a1");
          assertEquals(await counted(node), { invalid: undefined, localhost: undefined });
          assertEquals((await stage.rules()).includes("nfacct"), false, "no rule counts");
          await relay.stop();
        });
      }
    }
  });

  test(`--cleanup removes the counters of iptables mode (${variant}) and of kube-proxy`, async (t) => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    await node.output("nfacct", ["add", FOREIGN_COUNTER]);
    const left = async () =>
      [...(await node.output("nfacct", ["list"])).matchAll(/= (\w+);/g)].map(([, name]) => name);
    const relay = stage.start();
    await relay.settled();
    await relay.stop();
    await t.step("of kube-relay", async () => {
      const removed = await scene.cleanup();
      for (const name of COUNTERS) assertStringIncludes(removed, `packet counter ${name}`);
      assertEquals(await left(), [FOREIGN_COUNTER]);
    });
    await t.step("of kube-proxy", async () => {
      for (const name of COUNTERS) await node.output("nfacct", ["add", name]);
      for (const [index, family] of IP_FAMILIES.entries()) {
        const rules = kubeProxyIptablesWeb(family)
          .replace("INVALID -j DROP", `INVALID -m nfacct --nfacct-name ${COUNTERS[0]} -j DROP`);
        await stage.restore(IPTABLES_PREFIXES[index]!, rules);
      }
      await scene.cleanup();
      assertEquals(await left(), [FOREIGN_COUNTER]);
    });
    await t.step("not if a rule of another program counts", async () => {
      for (const name of COUNTERS) await node.output("nfacct", ["add", name]);
      const rule = `-A OUTPUT -m nfacct --nfacct-name ${COUNTERS[0]}`;
      await stage.restore("iptables", `*filter\n${rule}\nCOMMIT\n`);
      assertMatch(await scene.cleanup(), /left packet counter ct_state_invalid_dropped_pkts/);
      assertEquals((await left()).toSorted(), [FOREIGN_COUNTER, ...COUNTERS]);
    });
  });
}

const COUNTERS = ["ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"];

/** Replacements of the tool, as shell scripts. */
const BROKEN_TOOLS = {
  "a tool that is missing": undefined,
  "a kernel without counters": "echo 'nfacct v1.0.2: error: Invalid argument' >&2; exit 1",
};

/** Has a program see another nfacct; without a script, none. */
async function insteadOfNfacct(
  folder: string,
  script: string | undefined,
): Promise<readonly string[]> {
  const file = script === undefined ? "/dev/null" : `${folder}/nfacct`;
  if (script !== undefined) {
    await Deno.writeTextFile(file, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  const mount = `for f in $(which -a nfacct); do mount --bind ${file} "$f"; done; exec "$@"`;
  return ["unshare", "--mount", "sh", "-c", mount, "sh"];
}

/** Deletes all rules of both families, and all counters. */
async function flushAll({ node, variant }: IptablesScene): Promise<void> {
  for (const prefix of IPTABLES_PREFIXES) {
    for (const table of ["nat", "filter", "mangle"]) {
      // kube-relay may repair in between: a chain that a rule jumps to cannot be deleted.
      await eventually(`${table} is flushed`, async () => {
        const run = (action: string) =>
          node.run(`${prefix}-${variant}`, ["-w", "-t", table, action]);
        return (await run("-F")).code === 0 && (await run("-X")).code === 0;
      });
    }
  }
  await node.output("nfacct", ["flush"]);
}

/** The counters as the metrics have them; `undefined` = there is no such series. */
async function counted(node: Namespace) {
  const request = "GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n";
  const script = `exec 3<>/dev/tcp/127.0.0.1/10249 && printf '${request}' >&3 && cat <&3`;
  const page = await node.output("bash", ["-c", script]);
  const valueOf = (name: string) => {
    const [, value] = new RegExp(`^kubeproxy_iptables_${name}_packets_total (\\d+)`, "m")
      .exec(page) ?? [];
    return value === undefined ? undefined : Number(value);
  };
  return {
    invalid: valueOf("ct_state_invalid_dropped"),
    localhost: valueOf("localhost_nodeports_accepted"),
  };
}
