import { assert, assertEquals } from "@std/assert";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { isKubeProxySet } from "../netfilter/foreign/owners.ts";
import { SET_IDS, setName } from "./ipset_table.ts";

Deno.test("setName() gives every set a name of its own, kube-proxy's if it has one", () => {
  const names = IP_FAMILIES.flatMap((family) => SET_IDS.map((id) => setName(id, family)));
  assertEquals(new Set(names).size, names.length);
  for (const id of SET_IDS) {
    const isOurs = ["DSR", "SERVED", "NO-LOCAL-INTERNAL", "NO-LOCAL-EXTERNAL", "NODE-PORT-IPS"]
      .includes(id);
    for (const family of IP_FAMILIES) {
      assertEquals(isKubeProxySet(setName(id, family)), !isOurs, id);
      assert(setName(id, family).length <= 31);
    }
  }
  assertEquals(setName("LOAD-BALANCER-SOURCE-CIDR", "IPv6"), "KUBE-6-LOAD-BALANCER-SOURCE-CID");
});
