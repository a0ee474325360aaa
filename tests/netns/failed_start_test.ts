/** Tests that a start that fails leaves the node as it was. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";

const MODES = [
  ...RULE_MODES,
  {
    name: "userspace mode",
    args: ["--mode=userspace"],
    requirements: netnsRequirements,
    prepare: () => Promise.resolve(),
  },
];

const SETTINGS = ["conf.all.route_localnet", "ip_forward", "ip_nonlocal_bind"];

/** Rules, sets, counters, addresses and kernel settings of a node. */
async function contents(node: Namespace): Promise<Record<string, string>> {
  const commands: readonly (readonly [string, ...string[]])[] = [
    ["nft", "list", "ruleset"],
    ["nfacct", "list"],
    ["ipset", "list", "-n"],
    ["ip", "rule"],
    ["ip", "-o", "addr"],
    ["cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"],
    ["sysctl", ...SETTINGS.map((name) => `net.ipv4.${name}`)],
    ["sysctl", "-a", "--pattern", "nf_conntrack_(max|tcp_timeout)"],
  ];
  const found: Record<string, string> = {};
  for (const [name, ...args] of commands) {
    found[[name, ...args].join(" ")] = (await node.run(name, args)).stdout;
  }
  return found;
}

for (const { name, args, requirements, prepare } of MODES) {
  const test = testNeeding(`a failed start in ${name}`, [
    ...requirements(),
    ...["nft", "nfacct", "ipset"].map(program),
  ]);
  test(`a start without a kubeconfig leaves nothing on the node: ${name}`, async () => {
    await using scene = await RelayScene.create();
    const { cluster: { node }, folder } = scene;
    await prepare(node);
    const before = await contents(node);
    const names = () => Array.fromAsync(Deno.readDir(folder), (entry) => entry.name);
    const files = await names();
    const source = [`--kubeconfig=${folder}/missing`];
    for (const policies of [[], ["--network-policy"]]) {
      const relay = scene.start([...args, ...policies], { source });
      assertEquals(await relay.ended(), 1, relay.log);
      assertStringIncludes(relay.log, `Cannot read kubeconfig '${folder}/missing'`);
      assertEquals(await contents(node), before);
      assertEquals(await names(), files);
    }
  });
}
