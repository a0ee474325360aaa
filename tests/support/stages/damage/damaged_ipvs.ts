/**
 * The ipvs mode, for tests that damage objects in the kernel.
 *
 * @module
 */
import { systemCommandRunner } from "../../../../lib/os/command_runner.ts";
import { IPVS_MODE } from "../ipvs_mode.ts";
import type { Namespace } from "../netns.ts";
import {
  type DamagedMode,
  FOREIGN_RULES,
  iptablesMeaning,
  iptablesObjects,
} from "./damaged_modes.ts";
import { IPVS_DAMAGE, IPVS_RULE_DAMAGE } from "./ipvs_damage.ts";

/** A foreign virtual server, such as one of keepalived. */
const FOREIGN = [
  "ipvsadm -A -t 198.51.100.7:80 -s wlc",
  "ipset create foreign hash:ip",
  "ipset add foreign 192.0.2.77",
];

/** The mode. */
export const IPVS_DAMAGED: DamagedMode = {
  name: "ipvs",
  mode: "ipvs",
  requirements: IPVS_MODE.requirements,
  prepare: IPVS_MODE.prepare,
  async finish(node) {
    await damage(node, FOREIGN.join("\n"));
    await feed(node, ["iptables-legacy-restore", "-w", "5", "--noflush"], FOREIGN_RULES);
  },
  rows: [...IPVS_DAMAGE, ...IPVS_RULE_DAMAGE],
  damage,
  async objects(node) {
    // Whose connections are waited for goes when they have ended.
    const servers = (await node.output("ipvsadm", ["-S", "-n"])).replaceAll(/^.* -w 0$/gm, "");
    const sets = await node.output("ipset", ["save"]);
    const links = await node.ip("-o addr show");
    const rules = iptablesObjects(await node.output("iptables-legacy-save", ["-c"]));
    return new Map([
      ...rules,
      ["virtual servers", sorted(servers)],
      ["sets", sorted(sets.replaceAll(/ (?:initval|bucketsize) \S+/g, ""))],
      ["addresses", sorted(links.replaceAll(/^\d+: |\\.*$/gm, ""))],
    ]);
  },
  meaning: iptablesMeaning,
  touchedBy(differences) {
    const names = new Set(differences.map(({ name }) => name.replace(/,.*/, "")));
    return (name) => names.has(name);
  },
  writes: (calls) =>
    calls.filter((call) => /-batch|ipset restore|ipvsadm -R|restore .*--noflush$/.test(call))
      .length,
};

/** By the first word of each line. */
async function damage(node: Namespace, text: string): Promise<void> {
  for (const line of text.split("\n")) {
    const [tool = "", ...words] = line.split(" ");
    const rest = words.join(" ");
    if (tool === "ip") await node.ip(rest);
    else if (tool === "iptables") {
      const [table, ...rule] = words;
      const input = `*${table}\n${rule.join(" ")}\nCOMMIT\n`;
      await feed(node, ["iptables-legacy-restore", "-w", "5", "--noflush"], input);
    } else {await feed(
        node,
        tool === "ipset" ? ["ipset", "restore"] : ["ipvsadm", "-R"],
        `${rest}\n`,
      );}
  }
}

async function feed(
  node: Namespace,
  [program = "", ...args]: readonly string[],
  stdin: string,
): Promise<void> {
  const line = ["netns", "exec", node.name, program, ...args];
  const { code, stderr } = await systemCommandRunner.run("ip", line, { stdin });
  if (code !== 0 || stderr !== "") throw new Error(`Cannot run '${line.join(" ")}': ${stderr}`);
}

function sorted(text: string): string {
  return text.split("\n").map((line) => line.trim()).sort().join("\n").trim();
}
