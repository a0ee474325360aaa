/**
 * Gives the output of `kube-relay render` to the real tools, one IP family each.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { render } from "../support/drivers/command_line.ts";
import { isMissing, program } from "../support/requirement.ts";

const VARIANTS = ["nft", "legacy"];
const TOOLS = { IPv4: "iptables", IPv6: "ip6tables" } as const;
const MANIFESTS = new URL("../../examples/manifests", import.meta.url).pathname;

/** Arguments of `render`; the Service has both families. */
const FORMS: readonly (readonly string[])[] = [[], ["--service=public/site"]];

const ignore = isMissing("iptables-restore of what render prints", [
  ...netnsRequirements(),
  ...VARIANTS.flatMap((variant) => [
    program(`iptables-${variant}-restore`),
    program(`ip6tables-${variant}-restore`),
  ]),
]);

for (const variant of VARIANTS) {
  Deno.test({
    name: `iptables-${variant}-restore accepts the output of render, as a test and for real`,
    ignore,
    fn: async (t) => {
      for (const form of FORMS) {
        await using namespace = await Namespace.create("render");
        for (const family of IP_FAMILIES) {
          await t.step([family, ...form].join(" "), async () => {
            const tool = `${TOOLS[family]}-${variant}-restore`;
            const args = ["--mode=iptables", `--manifests=${MANIFESTS}`, `--family=${family}`];
            const { code, out, err } = await render([...args, ...form]);
            assertEquals([code, err], [0, ""]);
            assert(out.includes("public/site:https cluster IP"));
            const inside = ["netns", "exec", namespace.name, tool, "-w", "5", "--noflush"];
            for (const flags of [["--test"], []]) {
              const taken = await systemCommandRunner.run("ip", [...inside, ...flags], {
                stdin: out,
              });
              assertEquals([taken.code, taken.stderr], [0, ""], out);
            }
          });
        }
      }
    },
  });
}
