import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { nftFamily } from "./nft_objects.ts";
import { NftError, NftRunner } from "./nft_runner.ts";
import { NftTransaction } from "./nft_transaction.ts";

const INPUT = new NftTransaction({ family: "ip", name: "kube-relay" });
INPUT.add("add table");

function runnerOn(commands: FakeCommandRunner, family: "IPv4" | "IPv6" = "IPv4"): NftRunner {
  return new NftRunner({ commands }, { family: nftFamily(family), name: "kube-relay" });
}

Deno.test("NftRunner reads a listing that has an element twice again, but not for ever", async () => {
  const table = (...keys: readonly string[]) =>
    `table ip kube-relay {\n\tset cluster-ips {\n\t\telements = { ${keys} }\n\t}\n}\n`;
  const [torn, whole] = [table("10.0.0.1", "10.0.0.1"), table("10.0.0.1", "10.0.0.2")];
  for (const [listings, readings] of [[[torn, whole], 2], [[torn], 5]] as const) {
    const commands = new FakeCommandRunner();
    const given = [...listings];
    const listing = () => ({ stdout: (given.length > 1 ? given.shift() : given[0]) ?? "" });
    const found = await runnerOn(commands.on("nft --debug=netlink", listing)).readWithCode();
    assertEquals(found?.elements.get("cluster-ips")?.size, listings.length);
    assertEquals(commands.calls.length, readings);
  }
});

Deno.test("NftRunner.chains() gives the handles of chains, and skips foreign tables", async () => {
  const stdout = [
    "table ip other {\n\tchain services { # handle 3\n\t}\n}",
    "table ip kube-relay {\n\tchain layout-3 { # handle 15\n\t}\n\tchain nat-output { # handle 18",
    "\t\ttype nat hook output priority dstnat; policy accept;\n\t}\n}",
    "table ip kube-relay-probe {\n\tchain probe {\n\t}\n}\n",
  ].join("\n");
  const commands = new FakeCommandRunner()
    .on("nft --handle list chains ip", { stdout })
    .on("nft --handle list chains ip6", {});
  assertEquals([...await runnerOn(commands).chains()], [["layout-3", "15"], ["nat-output", "18"]]);
  assertEquals((await runnerOn(commands, "IPv6").chains()).size, 0);
});

for (const failure of ["not-found", "not-permitted", "timeout", "failed"] as const) {
  Deno.test(`NftRunner describes the failed action of a program that ends as '${failure}'`, async () => {
    const actions = {
      "Cannot read table ip kube-relay of nftables": (runner: NftRunner) => runner.readWithCode(),
      "Cannot look for table ip kube-relay of nftables": (runner: NftRunner) => runner.chains(),
      "Cannot write table ip kube-relay of nftables": (runner: NftRunner) => runner.write(INPUT),
    };
    for (const [words, action] of Object.entries(actions)) {
      const runner = runnerOn(new FakeCommandRunner().failNext(failure));
      const { kind } = await assertRejects(async () => void await action(runner), NftError, words);
      assertEquals(kind, failure.startsWith("not-") ? "unavailable" : "unclear");
    }
  });
}
