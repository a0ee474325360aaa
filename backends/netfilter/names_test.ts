import { assert, assertEquals } from "@std/assert";
import type { Protocol } from "../../lib/net/port.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { endpointName, nameHash, prefixChainName, serviceChainNames } from "./names.ts";

function name(namespace: string, service: string, port: string, protocol: Protocol) {
  return { namespace, name: service, port, protocol };
}

Deno.test("nameHash() gives the hashes that kube-proxy gives", () => {
  const vectors = [
    ["ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O"],
    ["ns1/svc1tcp", "AQI2S6QIMU7PVVRP"],
    ["kube-system/kube-dns:dnsudp", "TCOU7JCQXEZGVUNU"],
    ["default/kubernetes:httpstcp", "NPX46M4PTMTKRN6Y"],
  ] as const;
  for (const [text, hash] of vectors) assertEquals(nameHash(text), hash);
});

Deno.test("serviceChainNames() are those of kube-proxy", () => {
  assertEquals(serviceChainNames(name("ns1", "svc1", "p80", "TCP")), {
    cluster: "KUBE-SVC-XPGD46QRK7WJZT7O",
    local: "KUBE-SVL-XPGD46QRK7WJZT7O",
    external: "KUBE-EXT-XPGD46QRK7WJZT7O",
    firewall: "KUBE-FW-XPGD46QRK7WJZT7O",
  });
  assertEquals(
    serviceChainNames(name("kube-system", "kube-dns", "dns", "UDP")).cluster,
    "KUBE-SVC-TCOU7JCQXEZGVUNU",
  );
  assertEquals(
    serviceChainNames(name("ns1", "svc1", "", "TCP")).firewall,
    "KUBE-FW-AQI2S6QIMU7PVVRP",
  );
});

Deno.test("endpointName() is that of kube-proxy's chain for the endpoint", () => {
  const service = name("ns1", "svc1", "p80", "TCP");
  const vectors = [
    ["10.180.0.1:80", "KUBE-SEP-SXIVWICOYRO3J4NJ"],
    ["[fd00:1::2]:80", "KUBE-SEP-7W3OHKTIGT5PBS6V"],
  ] as const;
  for (const [key, expected] of vectors) {
    assertEquals(endpointName(service, key as EndpointKey), expected);
  }
});

Deno.test("prefixChainName() shows the prefix while it fits into a name", () => {
  assertEquals(prefixChainName("KUBE-VIP-", "0a600000-12"), "KUBE-VIP-0a600000-12");
  assertEquals(prefixChainName("KUBE-EVIP-", "0a600001t1f00-8"), "KUBE-EVIP-0a600001t1f00-8");
  const long = "fd000172003000000000000000000041t0050";
  const hashed = prefixChainName("KUBE-VIP-", long);
  assertEquals(hashed, `KUBE-VIP-${nameHash(long)}`);
  assert(hashed.length <= 28);
});
