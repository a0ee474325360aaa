import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { readIptablesTexts } from "./iptables_texts.ts";

const SAVE = "iptables-nft-save";

Deno.test("readIptablesTexts() asks for the named chains only", async () => {
  const commands = new FakeCommandRunner()
    .on("iptables-nft -t nat -S OUTPUT", {
      stdout: '-P OUTPUT ACCEPT\n-A OUTPUT -m comment --comment "to all" -j KUBE-A\n-A OUTPUT\n',
    })
    .on("iptables-nft -t filter -S KUBE-B", { stdout: "-N KUBE-B\n" });
  const chains = ["nat OUTPUT", "filter KUBE-B"];
  assertEquals([...await readIptablesTexts(commands, { save: SAVE, chains })], [
    ["nat OUTPUT", ['-m comment --comment "to all" -j KUBE-A', ""]],
    ["filter KUBE-B", []],
  ]);
});

Deno.test("readIptablesTexts() reads everything if a chain is refused", async () => {
  const commands = new FakeCommandRunner()
    .on("iptables-nft -t nat -S KUBE-A", { code: 1, stderr: "incompatible" })
    .on(SAVE, {
      stdout: "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -j DROP\nCOMMIT\n*raw\n-A OUTPUT -j CT\n",
    });
  assertEquals([...await readIptablesTexts(commands, { save: SAVE, chains: ["nat KUBE-A"] })], [
    ["nat KUBE-A", ["-j DROP"]],
    ["raw OUTPUT", ["-j CT"]],
  ]);
});
