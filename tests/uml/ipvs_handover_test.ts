/**
 * Tests the ipvs mode in place of a kube-proxy's, of itself, and of the iptables mode: no client
 * notices.
 */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { virtualServers } from "../support/stages/ipvs_state.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { testNeeding } from "../support/requirement.ts";
import { IPTABLES_MODES } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { GUEST } from "./guest.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { restoreRules } from "../support/stages/iptables_tools.ts";
import { ipvsSetName } from "../support/builders/kube_proxy_rules.ts";
import type { Namespace } from "../support/stages/netns.ts";

const GONE = { IPv4: "172.30.0.250", IPv6: "fd00:172:30::250" } as const;
const FAMILIES = ["IPv4", "IPv6"] as const;

const HASHES = {
  "LOOP-BACK": "hash:ip,port,ip",
  "CLUSTER-IP": "hash:ip,port",
  "EXTERNAL-IP": "hash:ip,port",
  "EXTERNAL-IP-LOCAL": "hash:ip,port",
  "LOAD-BALANCER": "hash:ip,port",
  "LOAD-BALANCER-LOCAL": "hash:ip,port",
  "LOAD-BALANCER-FW": "hash:ip,port",
  "LOAD-BALANCER-SOURCE-CIDR": "hash:ip,port,net",
  "LOAD-BALANCER-SOURCE-IP": "hash:ip,port,ip",
  "NODE-PORT-SCTP-HASH": "hash:ip,port",
  "NODE-PORT-LOCAL-SCTP-HASH": "hash:ip,port",
  "IPVS-IPS": "hash:ip",
} as const;
const BITMAPS = [
  "NODE-PORT-TCP",
  "NODE-PORT-LOCAL-TCP",
  "NODE-PORT-UDP",
  "NODE-PORT-LOCAL-UDP",
  "HEALTH-CHECK-NODE-PORT",
] as const;

/** Brings a node, both families, to where a kube-proxy that has ended leaves it. */
async function leaveKubeProxyIpvs(node: Namespace): Promise<void> {
  await node.ip("link add kube-ipvs0 type dummy");
  for (const family of FAMILIES) {
    const addresses = vips(family);
    const length = family === "IPv4" ? 32 : 128;
    await feed(node, ["ipset", "restore"], sets(family));
    await feed(node, ["ipvsadm", "-R"], servers(family));
    await node.ipBatch(addresses.map((each) => `addr add ${each}/${length} dev kube-ipvs0`));
    const prefix = family === "IPv4" ? "iptables" : "ip6tables";
    await restoreRules(node, `${prefix}-legacy`, rules(family));
  }
  await node.sysctl("net.ipv4.vs.conntrack=1", "net.ipv4.vs.expire_nodest_conn=1");
}

async function feed(node: Namespace, line: readonly string[], stdin: string): Promise<void> {
  const args = ["netns", "exec", node.name, ...line];
  const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
  if (code !== 0 || stderr !== "") throw new Error(`Cannot run '${line.join(" ")}': ${stderr}`);
}

function vips(family: IpFamily): string[] {
  const { clusterIp, externalIp } = ADDRESSES[family];
  return [clusterIp, GONE[family], ...(family === "IPv4" ? [externalIp] : [])];
}

function sets(family: IpFamily): string {
  const inet = family === "IPv4" ? "inet" : "inet6";
  const { clusterIp, externalIp, localPods: [pod] } = ADDRESSES[family];
  const add = (set: string, entry: string) => `add ${setOf(family, set)} ${entry}`;
  return [
    ...Object.entries(HASHES).map(([set, type]) =>
      `create ${setOf(family, set)} ${type} family ${inet} hashsize 1024 maxelem 65536`
    ),
    ...BITMAPS.map((set) => `create ${setOf(family, set)} bitmap:port range 0-65535`),
    ...["tcp", "udp"].flatMap((protocol) => [
      add("CLUSTER-IP", `${clusterIp},${protocol}:80`),
      add("LOOP-BACK", `${pod},${protocol}:8080,${pod}`),
      ...(family === "IPv4" ? [add("EXTERNAL-IP", `${externalIp},${protocol}:80`)] : []),
    ]),
    add("CLUSTER-IP", `${GONE[family]},tcp:80`),
    ...vips(family).map((address) => add("IPVS-IPS", address)),
    "",
  ].join("\n");
}

function servers(family: IpFamily): string {
  const { clusterIp, externalIp, localPods: [pod] } = ADDRESSES[family];
  const at = (address: string, port: number) =>
    family === "IPv4" ? `${address}:${port}` : `[${address}]:${port}`;
  const served = [clusterIp, ...(family === "IPv4" ? [externalIp] : [])];
  return [
    ...served.flatMap((address) =>
      ["-t", "-u"].flatMap((flag) => [
        `-A ${flag} ${at(address, 80)} -s rr`,
        `-a ${flag} ${at(address, 80)} -r ${at(pod, 8080)} -m -w 1`,
      ])
    ),
    `-A -t ${at(GONE[family], 80)} -s rr`,
    "",
  ].join("\n");
}

function rules(family: IpFamily): string {
  const match = (set: string, on: string) => `-m set --match-set ${setOf(family, set)} ${on}`;
  const loopback = family === "IPv4" ? "127.0.0.0/8" : "::1/128";
  const chains = (...names: readonly string[]) => names.map((name) => `:KUBE-${name} - [0:0]`);
  const jump = (from: string, comment: string, to: string) =>
    `-I ${from} -m comment --comment "${comment}" -j KUBE-${to}`;
  const local = "-m addrtype --dst-type LOCAL";
  const nat = [
    ...chains("SERVICES", "POSTROUTING", "NODE-PORT", "LOAD-BALANCER", "MARK-MASQ"),
    jump("OUTPUT", "kubernetes service portals", "SERVICES"),
    jump("PREROUTING", "kubernetes service portals", "SERVICES"),
    jump("POSTROUTING", "kubernetes postrouting rules", "POSTROUTING"),
    `-A KUBE-SERVICES -s ${loopback} -j RETURN`,
    `-A KUBE-SERVICES ${match("CLUSTER-IP", "dst,dst")} ! -s ${ADDRESSES[family].podCidr} -j ` +
    "KUBE-MARK-MASQ",
    ...(family === "IPv4"
      ? [
        `-A KUBE-SERVICES ${match("EXTERNAL-IP", "dst,dst")} -j KUBE-MARK-MASQ`,
        `-A KUBE-SERVICES ${match("EXTERNAL-IP", "dst,dst")} ${local} -j ACCEPT`,
      ]
      : []),
    `-A KUBE-SERVICES ${local} -j KUBE-NODE-PORT`,
    `-A KUBE-SERVICES ${match("CLUSTER-IP", "dst,dst")} -j ACCEPT`,
    `-A KUBE-POSTROUTING ${match("LOOP-BACK", "dst,dst,src")} -j MASQUERADE`,
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
    "-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
    "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
  ];
  const filter = [
    ...chains("FORWARD", "NODE-PORT", "PROXY-FIREWALL", "SOURCE-RANGES-FIREWALL"),
    ...chains("IPVS-FILTER", "IPVS-OUT-FILTER"),
    jump("FORWARD", "kubernetes forwarding rules", "FORWARD"),
    jump("INPUT", "kubernetes health check rules", "NODE-PORT"),
    jump("INPUT", "kube-proxy firewall rules", "PROXY-FIREWALL"),
    jump("FORWARD", "kube-proxy firewall rules", "PROXY-FIREWALL"),
    jump("INPUT", "kubernetes ipvs access filter", "IPVS-FILTER"),
    jump("OUTPUT", "kubernetes ipvs access filter", "IPVS-OUT-FILTER"),
    "-A KUBE-SOURCE-RANGES-FIREWALL -j DROP",
    "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
    "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    `-A KUBE-NODE-PORT ${match("HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`,
    ...["LOAD-BALANCER", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL"].map((set) =>
      `-A KUBE-IPVS-FILTER ${match(set, "dst,dst")} -j RETURN`
    ),
    `-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW ${match("IPVS-IPS", "dst")} -j REJECT`,
  ];
  return ["*nat", ...nat, "COMMIT", "*filter", ...filter, "COMMIT", ""].join("\n");
}

function setOf(family: IpFamily, name: string): string {
  return ipvsSetName(family, `KUBE-${name}`);
}

const test = testNeeding("handover to and from ipvs mode with real packets", [
  GUEST,
  ...IPVS_MODE.requirements(),
]);

/** A foreign virtual server, such as one of keepalived. */
const FOREIGN = ["-A", "-t", "198.51.100.7:80", "-s", "wlc"];

test("takeover by ipvs mode from a dead kube-proxy's, restarts and kill -9: no connection fails", async (t) => {
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
});

/**
 * Without the kubelet's chain, which contains a rule of iptables mode: once ipvs mode has written
 * the shared chains, the owner of that rule is unknown.
 */
function withoutKubelet(state: unknown): string {
  return String(state).replaceAll(/^.*KUBE-FIREWALL.*\n/gm, "");
}

test("from ipvs mode to iptables mode (legacy) and back: no new connection fails", async (t) => {
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
});
