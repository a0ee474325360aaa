import { assertEquals } from "@std/assert";
import { parseK3sNodeArgs } from "./k3s_node_args.ts";

const OFF = { disableKubeProxy: false, disableNetworkPolicy: false, disableServiceLb: false };

const CASES: readonly (readonly [value: string, args: ReturnType<typeof parseK3sNodeArgs>])[] = [
  ['["server"]', { role: "server", ...OFF }],
  ['["agent"]', { role: "agent", ...OFF }],
  ['["server","--disable-kube-proxy"]', { role: "server", ...OFF, disableKubeProxy: true }],
  [
    '["server","--disable-kube-proxy","true","-c","/etc/rancher/k3s/server.yaml"]',
    { role: "server", ...OFF, disableKubeProxy: true },
  ],
  ['["server","--disable-kube-proxy=true"]', { role: "server", ...OFF, disableKubeProxy: true }],
  ['["server","--disable-kube-proxy","false"]', { role: "server", ...OFF }],
  [
    '["server","--disable","traefik,servicelb","--disable-network-policy"]',
    { role: "server", ...OFF, disableNetworkPolicy: true, disableServiceLb: true },
  ],
  ['["server","--node-label","a=--disable-kube-proxy-not"]', { role: "server", ...OFF }],
  ["", undefined],
  ["{}", undefined],
  ["[1]", undefined],
  ['["etcd-snapshot"]', undefined],
];

for (const [value, args] of CASES) {
  Deno.test(`parseK3sNodeArgs() reads ${value || "nothing"}`, () => {
    assertEquals(parseK3sNodeArgs(value), args);
  });
}
