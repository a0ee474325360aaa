/**
 * Tests the toolkit for nft with a table that does not belong to Services: real nft accepts the
 * written table, and its listing matches.
 *
 * @module
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { atOnce } from "../../backends/netfilter/in_steps.ts";
import { NftError } from "../../backends/netfilter/nft/nft_error.ts";
import type {
  NftChain,
  NftContainer,
  NftElement,
  NftTableSpec,
} from "../../backends/netfilter/nft/nft_objects.ts";
import { NftRunner } from "../../backends/netfilter/nft/nft_runner.ts";
import {
  ElementLines,
  type NftChanges,
  NftTransaction,
} from "../../backends/netfilter/nft/nft_transaction.ts";
import {
  isDeclaredAs,
  normalHook,
  readChainPrint,
} from "../../backends/netfilter/nft/printed_form.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { isMissing, program } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";

const ignore = isMissing("the toolkit for nft with the kernel", [
  ...netnsRequirements(),
  program("nft"),
]);

type Name = "blocks" | "blocks-6" | "clients" | "isolated" | "peers" | "ports";
type Owner = "ns/allow" | "ns/deny";

const CONTAINERS: ReadonlyMap<Name, NftContainer> = new Map([
  ["isolated", { kind: "map", declaration: "type ipv4_addr : verdict" }],
  ["clients", { kind: "set", declaration: "type ipv4_addr" }],
  ["blocks", { kind: "set", declaration: "type ipv4_addr ; flags interval" }],
  ["blocks-6", { kind: "set", declaration: "type ipv6_addr ; flags interval" }],
  ["peers", { kind: "set", declaration: "type ipv4_addr . inet_proto . inet_service" }],
  [
    "ports",
    { kind: "set", declaration: "type ipv4_addr . inet_proto . inet_service ; flags interval" },
  ],
]);
const TABLE: NftTableSpec<Name> = { family: "inet", name: "made-up", containers: CONTAINERS };

const CHAINS: readonly (NftChain & { readonly owner?: Owner })[] = [
  {
    name: "to-pods",
    hook: "type filter hook forward priority 0",
    rules: ["ct state established,related accept", "ip daddr vmap @isolated"],
  },
  {
    name: "from-node",
    hook: "type filter hook output priority -10",
    rules: ["ip daddr vmap @isolated"],
  },
  {
    name: "pod-a",
    owner: "ns/allow",
    rules: ["ip saddr @clients accept", "jump common", "goto refuse"],
  },
  {
    name: "common",
    rules: [
      "ip saddr . meta l4proto . th dport @peers accept",
      "ip saddr . meta l4proto . th dport @ports accept",
      "ip saddr @blocks accept",
    ],
  },
  { name: "refuse", rules: ["reject"] },
];

const ELEMENTS: readonly NftElement<Name>[] = [
  { container: "isolated", key: "10.0.0.1", value: "goto pod-a" },
  { container: "isolated", key: "10.0.0.2", value: "drop" },
  { container: "clients", key: "10.0.0.9" },
  { container: "blocks", key: "192.0.2.0/24" },
  { container: "blocks", key: "198.51.100.7" },
  { container: "blocks-6", key: "2001:db8::/64" },
  { container: "blocks-6", key: "::102:300/120" },
  { container: "peers", key: "10.0.0.9 . tcp . 80" },
  { container: "peers", key: "10.0.0.9 . sctp . 17" },
  { container: "ports", key: "10.0.0.0/24 . udp . 5000-6000" },
];

class Stage implements AsyncDisposable {
  readonly runner: NftRunner;
  readonly #namespace: Namespace;

  private constructor(namespace: Namespace) {
    this.#namespace = namespace;
    const commands = {
      run: (...[name, args, options]: Parameters<typeof systemCommandRunner.run>) =>
        systemCommandRunner.run("ip", ["netns", "exec", namespace.name, name, ...args], options),
    };
    this.runner = new NftRunner({ commands }, TABLE);
  }

  static async create(): Promise<Stage> {
    return new Stage(await Namespace.create("toolkit"));
  }

  async write(changes: NftChanges<Owner, Name>): Promise<void> {
    await this.runner.write(atOnce(NftTransaction.steps(TABLE, changes)));
  }

  /** Writes everything, as the first sync of a process does. */
  async writeAll(): Promise<void> {
    await this.write({
      declared: CONTAINERS.keys(),
      chains: CHAINS,
      added: changesOf("add", ELEMENTS),
    });
  }

  nft(command: string): Promise<string> {
    return this.#namespace.output("nft", command.split(" "));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#namespace[Symbol.asyncDispose]();
  }
}

function changesOf(verb: "add" | "delete", elements: readonly NftElement<Name>[], owner?: Owner) {
  const changes = new Map<Name, ElementLines<Owner>>();
  for (const { container, key, value } of elements) {
    changes.getOrInsertComputed(container, () => new ElementLines(verb)).add(key, value, owner);
  }
  return changes;
}

function wanted(elements: readonly NftElement<Name>[]): Record<string, Record<string, string>> {
  const maps: Record<string, Record<string, string>> = {};
  for (const { container, key, value = "" } of elements) (maps[container] ??= {})[key] = value;
  return maps;
}

/** The elements of a reading, and the chains whose rules or hook differ from the wanted ones. */
async function found({ runner }: Stage) {
  const reading = await runner.readWithCode();
  if (reading === undefined) return undefined;
  const code = await runner.ruleCode(TABLE, CHAINS);
  const differs = ({ name, hook }: NftChain) => {
    const print = readChainPrint(reading.rules.get(name) ?? "");
    return print.hook !== (hook && normalHook(hook)) ||
      `${reading.code.get(name)}` !== `${code.get(name)}`;
  };
  const elements: Record<string, Record<string, string>> = {};
  for (const [name, values] of reading.elements) elements[name] = Object.fromEntries(values);
  return {
    elements,
    altered: CHAINS.filter(differs).map(({ name }) => name),
    chains: [...reading.rules.keys()].sort(),
    isDeclared: CONTAINERS.entries().every(([name, container]) =>
      isDeclaredAs(container, reading.declarations.get(name) ?? "none")
    ),
  };
}

const ALL = {
  elements: wanted(ELEMENTS),
  altered: [],
  chains: CHAINS.map(({ name }) => name).sort(),
  isDeclared: true,
};

Deno.test({
  name: "nft toolkit: a table of any user is read as it was written",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    assertEquals([await found(stage), await stage.runner.isThere()], [undefined, false]);
    // A second write over the existing table, as at a start.
    for (let time = 0; time < 2; time++) {
      await stage.writeAll();
      assertEquals(await found(stage), ALL);
    }
    assertEquals([...(await stage.runner.chains()).keys()].sort(), ALL.chains);
    assert(await stage.runner.hasElement("peers", "10.0.0.9 . tcp . 80"));
    assertEquals(await stage.runner.hasElement("peers", "10.0.0.9 . tcp . 81"), false);
    await stage.runner.remove();
    assertEquals(await stage.nft("list tables"), "");
    await stage.runner.remove();
  },
});

Deno.test({
  name: "nft toolkit: elements and chains are added and removed in one transaction each",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    await stage.writeAll();
    const [podA, ...rest] = ELEMENTS;
    const podB = { container: "isolated", key: "10.0.0.3", value: "goto pod-b" } as const;
    await stage.write({
      chains: [{ name: "pod-b", owner: "ns/deny", rules: ["drop"] }],
      removed: changesOf("delete", [podA!]),
      added: changesOf("add", [podB]),
      emptied: ["clients"],
    });
    // A transaction of its own: an element that is deleted by the same one still holds its chain.
    await stage.write({ removedChains: ["pod-a"] });
    const { chains, elements } = await found(stage) ?? {};
    const elsewhere = rest.filter(({ container }) => container !== "clients");
    assertEquals(elements, wanted([podB, ...elsewhere]));
    assertEquals(chains, ["common", "from-node", "pod-b", "refuse", "to-pods"]);
    await stage.write({ replacesTable: true, declared: CONTAINERS.keys(), chains: CHAINS });
    assertEquals(await found(stage), { ...ALL, elements: {} });
  },
});

Deno.test({
  name: "nft toolkit: the next reading shows changes by other programs, and they are repaired",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    const table = `${TABLE.family} ${TABLE.name}`;
    const harm: readonly (readonly [command: string, shows: Record<string, unknown>])[] = [
      [`add rule ${table} refuse drop`, { altered: ["refuse"] }],
      [`delete element ${table} clients { 10.0.0.9 }`, {
        elements: wanted(ELEMENTS.filter(({ container }) => container !== "clients")),
      }],
      [`add chain ${table} foreign`, { chains: [...ALL.chains, "foreign"].sort() }],
      [`chain ${table} to-pods { policy drop ; }`, { altered: ["to-pods"] }],
    ];
    for (const [command, shows] of harm) {
      await stage.writeAll();
      await stage.nft(command);
      assertEquals(await found(stage), { ...ALL, ...shows }, command);
      await stage.writeAll();
      const isForeign = command.includes("foreign");
      assertEquals(await found(stage), isForeign ? { ...ALL, ...shows } : ALL, command);
      await stage.runner.remove();
    }
  },
});

Deno.test({
  name: "nft toolkit: a refusal names the owner of each line, and nothing is taken",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    const nowhere = { container: "isolated", key: "10.0.0.3", value: "goto nowhere" } as const;
    const transaction = atOnce(NftTransaction.steps<Owner, Name>(TABLE, {
      declared: CONTAINERS.keys(),
      chains: [{ name: "pod-b", owner: "ns/deny", rules: ["ip saddr @no-set drop"] }],
      added: changesOf("add", [nowhere], "ns/allow"),
    }));
    const { kind, lines, message } = await assertRejects(
      () => stage.runner.write(transaction),
      NftError,
      "Cannot write table inet made-up of nftables: line ",
    );
    assertEquals(kind, "refused");
    assert(message.includes(" of ns/"), message);
    assert(lines.every(({ number }) => transaction.ownerOf(number) !== undefined), message);
    assertEquals(await stage.runner.isThere(), false);
  },
});
