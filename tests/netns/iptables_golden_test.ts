/**
 * The golden rules of iptables mode, given to the real tools: a file cannot be wrong and green.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { isMissing, program } from "../support/requirement.ts";

const VARIANTS = ["nft", "legacy"];
const FOLDER = new URL("../golden/iptables/", import.meta.url);

const ignore = isMissing("iptables-restore of golden rules", [
  ...netnsRequirements(),
  ...VARIANTS.flatMap((variant) => [
    program(`iptables-${variant}-restore`),
    program(`ip6tables-${variant}-restore`),
  ]),
]);

for (const variant of VARIANTS) {
  Deno.test({
    name: `iptables-${variant}-restore accepts every golden file`,
    ignore,
    fn: async (t) => {
      await using namespace = await Namespace.create("golden");
      for await (const { name } of Deno.readDir(FOLDER)) {
        await t.step(name, async () => {
          const tool = `${name.includes(".ipv6.") ? "ip6tables" : "iptables"}-${variant}-restore`;
          const stdin = await Deno.readTextFile(new URL(name, FOLDER));
          // Once as a test; then for real, as --test leaves out what only the kernel can refuse.
          for (const flags of [["--test"], []]) {
            const args = ["netns", "exec", namespace.name, tool, "-w", "5", "--noflush", ...flags];
            const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
            assertEquals([code, code === 0 ? "" : stderr], [0, ""]);
          }
        });
      }
    },
  });
}
