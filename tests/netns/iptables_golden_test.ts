/** The golden rules of iptables mode, given to the real tools: a file cannot be wrong and green. */
import { assert, assertEquals } from "@std/assert";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { render } from "../support/drivers/command_line.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";

const VARIANTS = ["nft", "legacy"];
const FOLDER = new URL("../golden/iptables/", import.meta.url);
const MANIFESTS = new URL("../../examples/manifests", import.meta.url).pathname;

const test = testNeeding("iptables-restore of golden rules", [
  ...netnsRequirements(),
  ...VARIANTS.flatMap((variant) => [
    program(`iptables-${variant}-restore`),
    program(`ip6tables-${variant}-restore`),
  ]),
]);

for (const variant of VARIANTS) {
  test(`iptables-${variant}-restore accepts every golden file, and one Service as render prints it`, async (t) => {
    await using namespace = await Namespace.create("golden");
    const texts = new Map<string, string>();
    for await (const { name } of Deno.readDir(FOLDER)) {
      texts.set(name, await Deno.readTextFile(new URL(name, FOLDER)));
    }
    for (const family of ["ipv4", "ipv6"]) {
      const args = ["--mode=iptables", `--manifests=${MANIFESTS}`, `--family=${family}`];
      const { out } = await render([...args, "--service=public/site"]);
      assert(out.includes("public/site:https cluster IP"));
      texts.set(`one Service of a render.${family}.`, out);
    }
    for (const [name, stdin] of texts) {
      await t.step(name, async () => {
        const tool = `${name.includes(".ipv6.") ? "ip6tables" : "iptables"}-${variant}-restore`;
        // Once as a test; then for real, as --test leaves out what only the kernel can refuse.
        for (const flags of [["--test"], []]) {
          const args = ["netns", "exec", namespace.name, tool, "-w", "5", "--noflush", ...flags];
          const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
          assertEquals([code, code === 0 ? "" : stderr], [0, ""]);
        }
      });
    }
  });
}
