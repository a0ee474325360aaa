/** The rules of kube-proxy for Service `web` of `web_service.ts`. */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { ADDRESSES } from "./address_plan.ts";
import { kubeProxyIptablesRules, kubeProxyNftRules } from "./kube_proxy_rules.ts";

/**
 * kube-proxy's rules for Service `web`, among foreign rules; in one commit, as kube-proxy writes
 * them.
 */
export function kubeProxyIptablesWeb(family: IpFamily): string {
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

/** As {@linkcode kubeProxyIptablesWeb}, of nftables mode. */
export function kubeProxyNftWeb(family: IpFamily): string {
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
