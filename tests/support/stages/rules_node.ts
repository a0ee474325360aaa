/**
 * A network namespace whose rules tests load, read and compare, with rules of other programs in it.
 */
import { assertEquals } from "@std/assert";
import type { ForeignSoftwareEdges } from "../../../backends/netfilter/foreign/find_foreign_software.ts";
import type { IptablesVariant } from "../../../backends/netfilter/iptables/iptables_variant.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { foreignIptablesRules } from "../builders/kube_proxy_rules.ts";
import { FakeNetwork } from "../fakes/fake_network.ts";
import { Namespace } from "./netns.ts";

/** Both variants, since a packet passes the rules of both. */
export const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

const FOREIGN_NFT = `table inet mine {
  chain input { type filter hook input priority 10 ; tcp dport 22 accept ; }
}
table ip kube-proxy-like { }
table inet kube-proxy { }
`;

/** A node whose rules a test reads and changes. */
export class RulesNode implements AsyncDisposable {
  readonly #namespace: Namespace;
  readonly commands: CommandRunner;

  private constructor(namespace: Namespace) {
    this.#namespace = namespace;
    const { name } = namespace;
    this.commands = {
      run: (program, args, options) =>
        systemCommandRunner.run("ip", ["netns", "exec", name, program, ...args], options),
    };
  }

  static async create(): Promise<RulesNode> {
    return new RulesNode(await Namespace.create("rules"));
  }

  /** The edges of the code under test; every port is closed. */
  get edges(): ForeignSoftwareEdges {
    const network = new FakeNetwork();
    for (const address of ["127.0.0.1:10249", "127.0.0.1:10256", "[::1]:10249", "[::1]:10256"]) {
      network.answers.set(address, "refuse");
    }
    return { commands: this.commands, clock: systemClock, network, uid: 0 };
  }

  async load(line: string, stdin: string): Promise<void> {
    const [command = "", ...args] = line.split(" ");
    const { code, stderr } = await this.commands.run(command, args, { stdin });
    assertEquals(code, 0, `${line}: ${stderr}`);
  }

  async loadIptables(variant: IptablesVariant, family: IpFamily, text: string): Promise<void> {
    await this.load(`${familyPrefix(family)}-${variant}-restore -w 5 --noflush`, text);
  }

  /** Everything that any tool shows, without dates and counters. */
  async rules(): Promise<string> {
    const commands = [
      ...VARIANTS.flatMap((variant) =>
        IP_FAMILIES.map((family) => [`${familyPrefix(family)}-${variant}-save`])
      ),
      ["nft", "list", "tables"],
      ["ipset", "save"],
    ];
    const texts: string[] = [];
    for (const [command = "", ...args] of commands) {
      const { code, stdout, stderr } = await this.commands.run(command, args);
      assertEquals(code, 0, stderr);
      const lines = stdout.split("\n").filter((line) => !line.startsWith("# "));
      texts.push(`${command}\n${lines.join("\n").replaceAll(/\[\d+:\d+\]/g, "[0:0]")}`);
    }
    return texts.join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#namespace[Symbol.asyncDispose]();
  }
}

function familyPrefix(family: IpFamily): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}

/** Foreign rules in every table, without rules of kube-proxy. */
export async function createUsedNode(
  variants: readonly IptablesVariant[] = VARIANTS,
): Promise<RulesNode> {
  const node = await RulesNode.create();
  for (const family of IP_FAMILIES) {
    for (const variant of variants) {
      await node.loadIptables(variant, family, foreignIptablesRules({ family }));
    }
  }
  await node.load("nft -f -", FOREIGN_NFT);
  await node.load("ipset restore", "create mine hash:ip family inet\nadd mine 192.0.2.1\n");
  return node;
}
