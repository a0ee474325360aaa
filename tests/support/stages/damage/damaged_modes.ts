/** The modes whose objects in the kernel are damaged by tests, and the names of these objects. */
import type { BackendMode } from "../../../../lib/proxy/backend.ts";
import type { DataPlaneDifference } from "../../../../lib/proxy/data_plane.ts";
import { IPTABLES_VARIANTS, type IptablesVariant, restoreRules } from "../iptables_tools.ts";
import type { Namespace } from "../netns.ts";
import { loadNftables } from "../nftables_tools.ts";
import { program, type Requirement } from "../../requirement.ts";
import { IPTABLES_MODES, NFTABLES_MODE } from "../rule_modes.ts";
import { IPTABLES_DAMAGE } from "./iptables_damage.ts";
import { NFTABLES_DAMAGE } from "./nftables_damage.ts";

/** One kind of damage. */
export interface DamageRow {
  /** The damage, as a sentence without a full stop; unique among the rows. */
  readonly name: string;
  /** Input for the tool of the mode; `{chain 2}` stands for the handle of a chain's second rule. */
  readonly damage: string;
  /**
   * The expected findings, sorted: `kind object name`, with the Service in brackets if it has one.
   */
  readonly found: readonly string[];
}

/** One of the modes. */
export interface DamagedMode {
  readonly name: string;
  readonly mode: BackendMode;
  readonly requirements: () => readonly Requirement[];
  /** Done before the mode is started. */
  readonly prepare: (node: Namespace) => Promise<void>;
  /** Done when it serves: other software comes, and packets are counted. */
  readonly finish: (node: Namespace) => Promise<void>;
  readonly rows: readonly DamageRow[];
  readonly damage: (node: Namespace, text: string) => Promise<void>;
  /** Every object of the kernel by its name, in full: with its handles and counters. */
  readonly objects: (node: Namespace) => Promise<ReadonlyMap<string, string>>;
  /** An object without handles and counters. */
  readonly meaning: (text: string) => string;
  /** Whether the repair of these may have rewritten an object. */
  readonly touchedBy: (differences: readonly DataPlaneDifference[]) => (name: string) => boolean;
  /** Returns the number of these commands that wrote something. */
  readonly writes: (calls: readonly string[]) => number;
}

const FOREIGN_TABLES = `table ip foreign {
  set blocked {
    type ipv4_addr
    elements = { 192.0.2.77, 192.0.2.78 }
  }
  map ports {
    type inet_service : verdict
    elements = { 81 : accept, 82 : drop }
  }
  chain input {
    type filter hook input priority 0; policy accept;
    ip saddr @blocked counter packets 17 bytes 1020 drop
    tcp dport vmap @ports
  }
}
table ip6 foreign {
  chain kube-relay {
    counter packets 3 bytes 180
  }
}
`;

const NFTABLES: DamagedMode = {
  name: "nftables",
  mode: "nftables",
  requirements: NFTABLES_MODE.requirements,
  prepare: NFTABLES_MODE.prepare,
  finish: (node) => loadNftables(node, FOREIGN_TABLES),
  rows: NFTABLES_DAMAGE,
  async damage(node, text) {
    let statements = text;
    for (const [mark, chain = "", number] of text.matchAll(/\{([a-z][\w-]*) (\d+)\}/g)) {
      const list = await node.output("nft", ["-a", "list", "chain", "ip", "kube-relay", chain]);
      const rules = [...list.matchAll(/^\t\t.*# handle (\d+)$/gm)].map(([, handle]) => handle);
      statements = statements.replace(mark, `${rules[Number(number) - 1]}`);
    }
    await loadNftables(node, statements);
  },
  objects: async (node) => nftObjects(await node.output("nft", ["-a", "list", "ruleset"])),
  meaning: (text) => text.replaceAll(/ # handle \d+/g, ""),
  touchedBy(differences) {
    // A changed declaration can only be rewritten together with everything in it.
    const isWhole = differences.some(({ object, kind }) =>
      object === "table" || (kind === "altered" && (object === "set" || object === "map"))
    );
    const names = new Set(differences.map(({ name }) => name.split(/[ ,]/)[0]));
    return (name) =>
      name.startsWith("ip kube-relay") && (isWhole || names.has(name.split(" ").at(-1)));
  },
  writes: (calls) => calls.filter((call) => call === "nft -f -").length,
};

/** Foreign rules in both tables that a mode writes to. */
const FOREIGN_RULES = `*nat
:FOREIGN - [0:0]
-A PREROUTING -m comment --comment "foreign" -j FOREIGN
-A POSTROUTING -m mark --mark 0x78 -m comment --comment "foreign" -j MASQUERADE
-A FOREIGN -d 192.0.2.50/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.51:80
COMMIT
*filter
:FOREIGN - [0:0]
:KUBE-ROUTER-FORWARD - [0:0]
-I INPUT 1 -m comment --comment "foreign" -j FOREIGN
-A FORWARD -m comment --comment "foreign" -j FOREIGN
-A FOREIGN -s 192.0.2.77/32 -j DROP
-A KUBE-ROUTER-FORWARD -j RETURN
COMMIT
`;

function iptables(variant: IptablesVariant): DamagedMode {
  const { mode, requirements, prepare } = IPTABLES_MODES[variant];
  const tool = `iptables-${variant}`;
  return {
    name: `iptables (${variant})`,
    mode,
    requirements: () => [...requirements(), program("nfacct")],
    prepare,
    async finish(node) {
      await restoreRules(node, tool, FOREIGN_RULES);
      // Each rule has its own counters: a rewritten rule starts at zero.
      let packets = 0;
      const counted = (await node.output(`${tool}-save`, ["-c"]))
        .replaceAll(/^\[0:0\] -A/gm, () => `[${++packets}:${60 * packets}] -A`);
      await restoreRules(node, tool, counted, ["--counters"]);
    },
    rows: IPTABLES_DAMAGE,
    damage: (node, text) => restoreRules(node, tool, text),
    objects: async (node) => iptablesObjects(await node.output(`${tool}-save`, ["-c"])),
    meaning: iptablesMeaning,
    touchedBy(differences) {
      const names = new Set(differences.map(({ name }) => name.replace(/,.*/, "")));
      return (name) => names.has(name);
    },
    writes: (calls) => calls.filter((call) => isWrite(call)).length,
  };
}

/**
 * Returns the rules without their counters, except for foreign rules. Jumps come to the top of a
 * built-in chain; their order among foreign jumps and those of the kubelet is undefined.
 */
function iptablesMeaning(text: string): string {
  const lines = text.split("\n");
  const foreign = lines.filter((line) => line.includes("foreign"));
  const own = lines.filter((line) => !line.includes("foreign"))
    .map((line) => line.replace(/^\[\d+:\d+\] /, ""));
  const isKubelets = (line: string) => /-j KUBE-FIREWALL$/.test(line);
  return [
    ...foreign,
    ...own.filter(isKubelets),
    ...own.filter((line) => !isKubelets(line)),
  ].join("\n");
}

function isWrite(call: string): boolean {
  return /^iptables\S*-restore .*--noflush$/.test(call);
}

/** All of them. */
export const DAMAGED_MODES: readonly DamagedMode[] = [
  ...IPTABLES_VARIANTS.map(iptables),
  NFTABLES,
];

/** Chains with their rules and the counters of these. */
function iptablesObjects(text: string): ReadonlyMap<string, string> {
  const objects = new Map<string, string>();
  let table = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) table = line.slice(1);
    const [, made] = /^:(\S+)/.exec(line) ?? [];
    if (made !== undefined) objects.set(`${table} ${made}`, "");
    const [, chain] = /^\[\d+:\d+\] -A (\S+)/.exec(line) ?? [];
    const name = `${table} ${chain}`;
    if (chain !== undefined) objects.set(name, `${objects.get(name)}${line}\n`);
  }
  return objects;
}

/** Tables, sets, maps and chains; elements are in no order. */
function nftObjects(text: string): ReadonlyMap<string, string> {
  const objects = new Map<string, string>();
  for (const table of text.split(/^(?=table )/m)) {
    const [, tableName = ""] = /^table (\S+ \S+)/.exec(table) ?? [];
    objects.set(
      tableName,
      table.split("\n", 2).filter((line) => !/^\t(set|map|chain)/.test(line)).join("\n"),
    );
    for (const object of table.split(/^(?=\t(?:set|map|chain) )/m).slice(1)) {
      const [, kind, name] = /^\t(\w+) (\S+)/.exec(object) ?? [];
      objects.set(
        `${tableName} ${kind} ${name}`,
        sortedElements(object).replace(/\n}\n*$/, "").trimEnd(),
      );
    }
  }
  return objects;
}

function sortedElements(object: string): string {
  return object.replace(
    /elements = \{([^}]*)\}/,
    (_, list: string) =>
      `elements = {${list.split(",").map((item) => item.trim()).sort().join(", ")}}`,
  );
}
