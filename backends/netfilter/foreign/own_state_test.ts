import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { ownStateOfMode } from "./own_state.ts";

/** A host with iptables-nft alone. */
const commands = new FakeCommandRunner().on("", { code: 127 }).on("cat /proc/net/", {})
  .on("iptables-restore --version", { stdout: "iptables-restore v1.8.9 (nf_tables)\n" })
  .on("ip6tables-restore --version", { stdout: "ip6tables-restore v1.8.9 (nf_tables)\n" });

const OURS = { family: "IPv4", variant: "nft" } as const;
const OTHER = { family: "IPv4", variant: "legacy" } as const;

Deno.test("ownStateOfMode() keeps kube-proxy's names in the rule set that iptables mode writes", async () => {
  const { chain, set, device, counter } = await ownStateOfMode({ commands }, { mode: "iptables" });
  const isKept = (world: typeof OURS | typeof OTHER, table: string, name: string) =>
    chain?.({ world, table, chain: name });
  assertEquals(isKept(OURS, "nat", "KUBE-SERVICES"), true);
  assertEquals(isKept(OTHER, "nat", "KUBE-SERVICES"), false);
  assertEquals(isKept(OURS, "filter", "KUBE-IPVS-FILTER"), false, "what refers to sets that go");
  assertEquals([set, device, counter?.()], [undefined, undefined, true]);
});

Deno.test("ownStateOfMode() keeps all of it for ipvs mode, and nothing for userspace mode", async () => {
  const ipvs = await ownStateOfMode({ commands }, { mode: "ipvs" });
  const place = { world: OURS, table: "filter", chain: "KUBE-IPVS-FILTER" };
  assertEquals([ipvs.chain?.(place), ipvs.set?.("KUBE-CLUSTER-IP")], [true, true]);
  assertEquals(await ownStateOfMode({ commands }, { mode: "userspace" }), {});
  const nftables = await ownStateOfMode({ commands }, { mode: "nftables" });
  assertEquals(nftables.nftTable?.({ family: "ip", name: "kube-relay" }), true);
  assertEquals(nftables.nftTable?.({ family: "ip", name: "kube-proxy" }), false);
});
