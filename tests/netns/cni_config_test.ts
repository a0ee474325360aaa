/** Tests the CNI configuration with the real plugins, as a container runtime runs them. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { cniText } from "../../backends/announce/pod_network/data_plane.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { file, testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { withFolder } from "../support/with_folder.ts";

const PLUGINS = "/usr/lib/cni";
const test = testNeeding("the CNI configuration with real plugins", [
  ...netnsRequirements(),
  file(`${PLUGINS}/bridge`, "Debian package containernetworking-plugins"),
]);

/** Adds a pod to the network by the first plugin, as libcni does. */
async function addPod(
  { node, pod }: { readonly node: Namespace; readonly pod: Namespace },
  { text, dataDir }: { readonly text: string; readonly dataDir: string },
): Promise<void> {
  const { name, cniVersion, plugins: [plugin] } = JSON.parse(text);
  // Otherwise the addresses in use would stay on the machine of the test.
  const ipam = { ...plugin.ipam, dataDir };
  const input = `${dataDir}/${pod.name}.json`;
  await Deno.writeTextFile(input, JSON.stringify({ ...plugin, ipam, name, cniVersion }));
  await node.output("sh", [
    "-c",
    `CNI_COMMAND=ADD CNI_IFNAME=eth0 CNI_CONTAINERID=${pod.name} CNI_PATH=${PLUGINS} ` +
    `CNI_NETNS=/var/run/netns/${pod.name} ${PLUGINS}/${plugin.type} <${input}`,
  ]);
}

test("the plugin bridge gives pods addresses of both ranges, a route and the MTU", () =>
  withFolder(async (dataDir) => {
    const [node, first, second] = await Namespace.createAll(["node", "one", "two"]) as [
      ...[Namespace, Namespace],
      Namespace,
    ];
    await using _namespaces = {
      [Symbol.asyncDispose]: () => Namespace.removeAll([node, first, second]),
    };
    const text = cniText({
      podCidrs: ["10.180.1.0/24", "fd00:180:1::/64"].map(parseCidr),
      mtu: 1480,
      portMappings: true,
    });
    for (const pod of [first, second]) await addPod({ node, pod }, { text, dataDir });
    const link = await first.ip("addr show eth0");
    for (const words of ["mtu 1480", "10.180.1.2/24", "fd00:180:1::2/64"]) {
      assertStringIncludes(link, words);
    }
    assertStringIncludes(await second.ip("addr show eth0"), "10.180.1.3/24");
    assertStringIncludes(await first.ip("route show default"), "via 10.180.1.1");
    assertStringIncludes(await first.ip("-6 route show default"), "via fd00:180:1::1");
    assertStringIncludes(await node.ip("addr show kube-relay-pods"), "10.180.1.1/24");
    const forwards = await node.output("sysctl", [
      ...["-n", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"],
    ]);
    assertEquals(forwards, "1\n1\n", "the plugin has the node forward");
  }));
