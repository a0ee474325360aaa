/**
 * The golden rules of nftables mode, given to the real tool: a file cannot be wrong and green.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { CONTAINER_NAMES, DYNAMIC_CONTAINER } from "../../backends/nftables/containers.ts";
import { TableListing } from "../../backends/netfilter/nft/table_listing.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { FakeNft } from "../support/fakes/fake_nft.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { isMissing, program } from "../support/requirement.ts";

const FOLDER = new URL("../golden/nftables/", import.meta.url);

const ignore = isMissing("nft -f of golden rules", [...netnsRequirements(), program("nft")]);

Deno.test({
  name: "nft takes every golden file, and lists what is in it",
  ignore,
  fn: async (t) => {
    await using namespace = await Namespace.create("golden");
    for await (const { name } of Deno.readDir(FOLDER)) {
      await t.step(name, async () => {
        const stdin = await Deno.readTextFile(new URL(name, FOLDER));
        const family = name.includes(".ipv6.") ? "ip6" : "ip";
        // A second time over what is there: that is what a start does.
        for (const flags of [["--check"], [], []]) {
          const args = ["netns", "exec", namespace.name, "nft", ...flags, "-f", "-"];
          const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
          assertEquals([code, stderr], [0, ""]);
        }
        const table = [family, "kube-relay"];
        const listing = new TableListing();
        const text = await namespace.output("nft", ["list", "table", ...table]);
        for (const line of text.split("\n")) listing.take(line);
        const { declarations, elements, rules } = listing.end();
        const fake = new FakeNft();
        fake.run(stdin);
        const wanted = fake.table(table.join(" "));
        assertEquals([...rules.keys()].sort(), [...wanted.chains.keys()].sort());
        assertEquals([...declarations.keys()].sort(), [...CONTAINER_NAMES].sort());
        for (const container of CONTAINER_NAMES) {
          if (container === DYNAMIC_CONTAINER) continue;
          const found = [...elements.get(container) ?? []].sort();
          assertEquals(found, [...wanted.elements.get(container) ?? []].sort(), container);
        }
        // nft 1.0.6 ends on some types that it takes: whoever looks must get an answer.
        assert((await namespace.output("nft", ["-j", "list", "ruleset"])).includes("service-ips"));
        await namespace.output("nft", ["delete", "table", ...table]);
      });
    }
  },
});
