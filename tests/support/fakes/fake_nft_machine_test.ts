import { assertEquals } from "@std/assert";
import { NftRunner } from "../../../backends/netfilter/nft/nft_runner.ts";
import { FakeNftMachine } from "./fake_nft_machine.ts";

const TEXT = `add table ip kube-relay
add chain ip kube-relay services { type nat hook output priority -100 ; }
add rule ip kube-relay services drop
add map ip kube-relay numbered-chains { type classid : verdict ; }
add set ip kube-relay cluster-ips { type ipv4_addr ; }
add element ip kube-relay numbered-chains {
  0x80000001 : drop,
  0xffffffff : goto services
}
add element ip kube-relay cluster-ips {
  172.30.0.1
}
`;

Deno.test("FakeNftMachine prints written objects as nft does", async () => {
  const machine = new FakeNftMachine();
  const runner = new NftRunner(machine, { family: "ip", name: "kube-relay" });
  assertEquals([await runner.read(), (await runner.chains()).size], [undefined, 0]);
  await runner.write({
    toLines: () => TEXT.split("\n"),
    ownerOf: () => undefined,
    text: () => [TEXT],
  });
  machine.tool.run("add table ip other\nadd chain ip other foreign\n");
  assertEquals([...(await runner.chains()).keys()], ["services"]);
  const { declarations, elements, rules } = await runner.read() ?? {};
  assertEquals([...rules?.keys() ?? []], ["services"]);
  assertEquals([...declarations ?? []], [
    ["numbered-chains", "map\ntype classid : verdict\n"],
    ["cluster-ips", "set\ntype ipv4_addr\n"],
  ]);
  assertEquals(rules?.get("services"), "\t\ttype nat hook output priority -100;\n\t\tdrop\n");
  assertEquals([...elements ?? []].map(([name, values]) => [name, [...values]]), [
    ["numbered-chains", [["0x80000001", "drop"], ["0xffffffff", "goto services"]]],
    ["cluster-ips", [["172.30.0.1", ""]]],
  ]);
});

Deno.test("FakeNftMachine names every refused line, and applies none", async () => {
  const machine = new FakeNftMachine();
  machine.judge = (line) => /goto|172/.test(line) ? "Invalid argument" : undefined;
  const { code, stderr } = await machine.commands.run("nft", ["-f", "-"], { stdin: TEXT });
  assertEquals([code, stderr.match(/:\d+:/g)], [1, [":8:", ":11:"]]);
  assertEquals(machine.tool.tables, []);
});
