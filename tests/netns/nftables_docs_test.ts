/** The commands of docs/nftables.md, run by the real nft on the table that the page is about. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { renderNftables } from "../../backends/nftables/render.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { defaultRenderOptions } from "../support/builders/nftables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../support/builders/service_plans.ts";
import { readPage } from "../support/docs/command_pages.ts";
import { extractBlocks } from "../support/docs/markdown_blocks.ts";
import { parseShell } from "../support/docs/shell_commands.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";

const test = testNeeding("the commands of docs/nftables.md", [
  ...netnsRequirements(),
  ...["nft", "timeout"].map(program),
]);

/** The client of the page, as packets would have it remembered. */
const REMEMBERED = "add element ip kube-relay affinity { " +
  "0x89ae8000 . 10.180.0.11 timeout 10m : 0x89aee9d1 }\n";

/** A node with the Service of the page. */
async function createNode(): Promise<Namespace> {
  const plan = testProxyPlan([testServicePlan({
    clusterIp: "172.30.0.10",
    masqueradeInternal: "off-cluster",
    to: ["10.180.0.11:8080", "10.180.1.12:8080"],
  })], {
    shared: {
      localTraffic: { kind: "byCidr", cidr: parseCidr("10.180.0.0/16") },
      serviceCidrs: [parseCidr("172.30.0.0/16")],
    },
  });
  const { transaction } = renderNftables(plan, defaultRenderOptions("IPv4"));
  const node = await Namespace.create("docs");
  await loadNftables(node, [...transaction.text(), REMEMBERED].join(""));
  return node;
}

/** Runs a command. An endless one is stopped, and does not count as failed. */
async function run(node: Namespace, words: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await node.run("timeout", ["1", ...words]);
  assert(code === 0 || (code === 124 && words[1] === "monitor"), `${words.join(" ")}: ${stderr}`);
  return stdout;
}

/** A line of a listing; times go by. */
function lineOf(text: string): string {
  return text.trim().replace(/expires \S+/, "expires soon");
}

test("docs/nftables.md: every command of nft works, and prints the text on the page", async (t) => {
  await using node = await createNode();
  const blocks = extractBlocks(await readPage("docs/nftables.md"));
  let count = 0;
  for (const { language, text } of blocks) {
    const commands = language === "sh" ? parseShell(text) : [];
    for (const { words } of commands.filter(({ words: [name] }) => name === "nft")) {
      count++;
      await t.step(words.join(" "), async () => void await run(node, words));
    }
    const shown = text.startsWith("$ nft ") ? text.split(/^\$ /m).slice(1) : [];
    for (const session of shown) {
      count++;
      const [command = "", ...lines] = session.split("\n");
      await t.step(`the output of ${command}`, async () => {
        const [{ words } = { words: [] }] = parseShell(command);
        const found = (await run(node, words)).split("\n").map(lineOf).join("\n");
        for (const line of lines) assertStringIncludes(found, lineOf(line));
      });
    }
  }
  assert(count >= 12, `only ${count} were found`);
  assertEquals((await node.output("nft", ["list", "tables"])).trim(), "table ip kube-relay");
});
