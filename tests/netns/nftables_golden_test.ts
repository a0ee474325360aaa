/**
 * The golden rules of nftables mode and of NetworkPolicy, given to the real tool: a file cannot be wrong and green.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { TableListing } from "../../backends/netfilter/nft/table_listing.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { FakeNft } from "../support/fakes/fake_nft.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";

const test = testNeeding("nft -f of golden rules", [...netnsRequirements(), program("nft")]);

for (
  const [what, folder, name] of [
    ["every golden file", "nftables", "kube-relay"],
    ["every golden file of NetworkPolicy", "policy-nftables", "kube-relay-policy"],
  ] as const
) {
  test(`nft accepts ${what}, and lists its content`, async (t) => {
    await using namespace = await Namespace.create("golden");
    const place = new URL(`../golden/${folder}/`, import.meta.url);
    for await (const { name: file } of Deno.readDir(place)) {
      await t.step(file, async () => {
        const stdin = await Deno.readTextFile(new URL(file, place));
        const table = [file.includes(".ipv6.") ? "ip6" : "ip", name];
        // Once as a test, and twice as a start over an existing table does.
        for (const flags of [["--check"], [], []]) {
          const args = ["netns", "exec", namespace.name, "nft", ...flags, "-f", "-"];
          const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
          assertEquals([code, stderr], [0, ""]);
        }
        const listing = new TableListing();
        const text = await namespace.output("nft", ["list", "table", ...table]);
        for (const line of text.split("\n")) listing.take(line);
        const { declarations, elements, rules } = listing.end();
        const fake = new FakeNft();
        fake.run(stdin);
        const wanted = fake.table(table.join(" "));
        assertEquals([...rules.keys()].sort(), [...wanted.chains.keys()].sort());
        assertEquals([...declarations.keys()].sort(), [...wanted.declarations.keys()].sort());
        for (const container of wanted.declarations.keys()) {
          // The packet path fills it.
          if (container === "affinity") continue;
          const found = [...elements.get(container) ?? []].sort();
          assertEquals(found, [...wanted.elements.get(container) ?? []].sort(), container);
        }
        // nft 1.0.6 crashes on some types that it accepts: a listing must succeed.
        assertStringIncludes(await namespace.output("nft", ["-j", "list", "ruleset"]), name);
        await namespace.output("nft", ["delete", "table", ...table]);
      });
    }
  });
}
