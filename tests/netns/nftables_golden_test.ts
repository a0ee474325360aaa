/**
 * The golden rules of nftables mode and of NetworkPolicy, given to the real tool: a file cannot be wrong and green.
 */
import { assert, assertEquals } from "@std/assert";
import { servicesTable } from "../../backends/nftables/containers.ts";
import { TableListing } from "../../backends/netfilter/nft/table_listing.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { FakeNft } from "../support/fakes/fake_nft.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";

const FOLDER = new URL("../golden/nftables/", import.meta.url);

const test = testNeeding("nft -f of golden rules", [...netnsRequirements(), program("nft")]);

/** Gives a text to nft, twice, as a start over an existing table does. */
async function load(namespace: Namespace, stdin: string): Promise<void> {
  for (const flags of [["--check"], [], []]) {
    const args = ["netns", "exec", namespace.name, "nft", ...flags, "-f", "-"];
    const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
    assertEquals([code, stderr], [0, ""]);
  }
}

test("nft accepts every golden file, and lists its content", async (t) => {
  await using namespace = await Namespace.create("golden");
  for await (const { name } of Deno.readDir(FOLDER)) {
    await t.step(name, async () => {
      const stdin = await Deno.readTextFile(new URL(name, FOLDER));
      const family = name.includes(".ipv6.") ? "ip6" : "ip";
      await load(namespace, stdin);
      const table = [family, "kube-relay"];
      const listing = new TableListing();
      const text = await namespace.output("nft", ["list", "table", ...table]);
      for (const line of text.split("\n")) listing.take(line);
      const { declarations, elements, rules } = listing.end();
      const fake = new FakeNft();
      fake.run(stdin);
      const wanted = fake.table(table.join(" "));
      assertEquals([...rules.keys()].sort(), [...wanted.chains.keys()].sort());
      assertEquals(
        [...declarations.keys()].sort(),
        [...servicesTable("IPv4").containers.keys()].sort(),
      );
      for (const container of servicesTable("IPv4").containers.keys()) {
        // The packet path fills it.
        if (container === "affinity") continue;
        const found = [...elements.get(container) ?? []].sort();
        assertEquals(found, [...wanted.elements.get(container) ?? []].sort(), container);
      }
      // nft 1.0.6 crashes on some types that it accepts: a listing must succeed.
      assert((await namespace.output("nft", ["-j", "list", "ruleset"])).includes("service-ips"));
      await namespace.output("nft", ["delete", "table", ...table]);
    });
  }
});

test("nft accepts every golden file of NetworkPolicy, and lists its content", async (t) => {
  await using namespace = await Namespace.create("golden");
  const folder = new URL("../golden/policy-nftables/", import.meta.url);
  for await (const { name } of Deno.readDir(folder)) {
    await t.step(name, async () => {
      const stdin = await Deno.readTextFile(new URL(name, folder));
      await load(namespace, stdin);
      const table = [name.includes(".ipv6.") ? "ip6" : "ip", "kube-relay-policy"];
      const listing = new TableListing();
      const text = await namespace.output("nft", ["list", "table", ...table]);
      for (const line of text.split("\n")) listing.take(line);
      const { elements, rules } = listing.end();
      const fake = new FakeNft();
      fake.run(stdin);
      const wanted = fake.table(table.join(" "));
      assertEquals([...rules.keys()].sort(), [...wanted.chains.keys()].sort());
      for (const [container, values] of wanted.elements) {
        assertEquals([...elements.get(container) ?? []].sort(), [...values].sort(), container);
      }
      await namespace.output("nft", ["delete", "table", ...table]);
    });
  }
});
