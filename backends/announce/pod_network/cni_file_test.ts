import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { cniText } from "./data_plane.ts";

const OPTIONS = {
  podCidrs: ["10.244.1.0/24", "fd00:244:1::/64"].map(parseCidr),
  mtu: 1480,
  portMappings: true,
};

Deno.test("cniText() has the bridge with all ranges, and host ports if asked for", () => {
  const { plugins, ...list } = JSON.parse(cniText(OPTIONS));
  assertEquals(list.name, "kube-relay");
  assertEquals(plugins[0], {
    type: "bridge",
    bridge: "kube-relay-pods",
    isDefaultGateway: true,
    ipMasq: false,
    mtu: 1480,
    ipam: {
      type: "host-local",
      ranges: [[{ subnet: "10.244.1.0/24" }], [{ subnet: "fd00:244:1::/64" }]],
    },
  });
  assertEquals(plugins[1], { type: "portmap", capabilities: { portMappings: true } });
  assertEquals(JSON.parse(cniText({ ...OPTIONS, portMappings: false })).plugins.length, 1);
});
